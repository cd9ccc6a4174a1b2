// Reading the reference data, and loading models for it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/safetensors.h"
#include "llm/llm.h"

namespace snug::golden {

inline std::filesystem::path dir() {
  return SNUG_GOLDEN_DIR;
}

// The device that these tests run on: the CPU, or with SNUG_TEST_DEVICE=cuda a GPU.
inline bool on_gpu() {
  const char* device = std::getenv("SNUG_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "cuda";
}
inline Result<std::shared_ptr<Gpu>> gpu() {
  if (!on_gpu()) return std::shared_ptr<Gpu>();
  SNUG_ASSIGN(auto opened, Gpu::open());
  return std::shared_ptr<Gpu>(std::move(opened));
}

#define SNUG_NEEDS_GOLDEN()                                                                                \
  if (!std::filesystem::exists(snug::golden::dir())) {                                                     \
    GTEST_SKIP() << "the reference data is not at " << snug::golden::dir() << ": nothing to compare with"; \
  }                                                                                                        \
  if (const auto device = snug::golden::gpu(); !device.ok()) GTEST_SKIP() << device.error().to_string()

inline Json read_json(const std::filesystem::path& path) {
  auto text = read_text_file(path, 64 << 20);
  EXPECT_TRUE(text.ok()) << path;
  return Json::parse(*text);
}

// Tensors of a safetensors file as float32.
class Tensors {
 public:
  explicit Tensors(const std::filesystem::path& path) {
    auto file = MappedFile::open(path);
    EXPECT_TRUE(file.ok()) << path;
    file_ = std::move(*file);
    auto entries = formats::parse_safetensors(file_.bytes(), path.string());
    EXPECT_TRUE(entries.ok()) << entries.error().to_string();
    entries_ = std::move(*entries);
  }
  bool has(const std::string& name) const { return find(name) != nullptr; }
  std::vector<float> read(const std::string& name) const {
    const auto* entry = find(name);
    EXPECT_NE(entry, nullptr) << name;
    std::int64_t count = 1;
    for (const auto n : entry->shape) count *= n;
    std::vector<float> values(static_cast<std::size_t>(count));
    quant::info(entry->format).decode(file_.bytes().data() + entry->offset, values.data(), count);
    return values;
  }

 private:
  const formats::TensorEntry* find(const std::string& name) const {
    for (const auto& entry : entries_) {
      if (entry.name == name) return &entry;
    }
    return nullptr;
  }
  MappedFile file_;
  std::vector<formats::TensorEntry> entries_;
};

struct LoadFlags {
  kernels::Precision precision = kernels::Precision::exact;
  DType kv_dtype = DType::f32;
  std::int64_t max_model_len = 1024;
  std::int64_t chunk = 512;
  std::int64_t sequences = 1;
  std::int64_t logit_rows = 16;
  int threads = 2;
};

inline std::unique_ptr<llm::LLM> load(const std::filesystem::path& path, const LoadFlags& flags) {
  auto skeleton = llm::open_skeleton(path.string());
  EXPECT_TRUE(skeleton.ok()) << skeleton.error().to_string();
  if (!skeleton.ok()) return nullptr;
  llm::LoadOptions options;
  options.precision = flags.precision;
  options.budget.host = 8ll << 30;
  options.budget.gpu = 8ll << 30;
  auto device = gpu();
  EXPECT_TRUE(device.ok()) << device.error().to_string();
  if (!device.ok()) return nullptr;
  options.gpu = *device;
  options.wishes = {.max_model_len = flags.max_model_len,
                    .max_num_seqs = flags.sequences,
                    .max_num_batched_tokens = flags.chunk,
                    .logit_rows = flags.logit_rows,
                    .kv_dtype = flags.kv_dtype,
                    .threads = flags.threads};
  auto llm = llm::LLM::load(std::move(*skeleton), options);
  EXPECT_TRUE(llm.ok()) << llm.error().to_string();
  return llm.ok() ? std::move(*llm) : nullptr;
}

// All logits of a sequence, (tokens, vocab).
inline std::vector<float> all_logits(llm::LLM& llm, const std::vector<std::int32_t>& ids) {
  std::vector<float> all;
  const auto status =
      llm.engine().evaluate(ids, [&](std::int64_t, std::int64_t count, const float* logits) -> Status {
        all.insert(all.end(), logits, logits + count * llm.skeleton().config.vocab);
        return {};
      });
  EXPECT_TRUE(status.ok()) << status.error().to_string();
  return all;
}

inline engine::SamplingParams greedy(int max_tokens) {
  engine::SamplingParams params;
  params.temperature = 0;
  params.max_tokens = max_tokens;
  params.ignore_eos = true;
  return params;
}

inline float largest(const std::vector<float>& values) {
  float most = 0;
  for (const float v : values) most = std::max(most, std::abs(v));
  return most;
}

inline float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float d = std::abs(a[i] - b[i]);
    most = std::isnan(d) ? INFINITY : std::max(most, d);
  }
  return most;
}

}  // namespace snug::golden
