// Weights loaded from files, run through the forward pass, against the model's definition.
#include "residency/resident_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "base/thread_pool.h"
#include "kv/block_pool.h"
#include "model/qwen2.h"
#include "unit/residency/naive_forward.h"

namespace snug::residency {
namespace {

using model::Placement;
using test::NaiveModel;

std::uint64_t fresh_seed() {
  const std::uint64_t seed = std::random_device{}();
  printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

std::vector<std::int32_t> random_ids(std::uint64_t seed, int count, std::int64_t vocab) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < count; ++i) {
    ids.push_back(static_cast<std::int32_t>(random_bits(seed, 99, static_cast<std::uint64_t>(i)) %
                                            static_cast<std::uint64_t>(vocab)));
  }
  return ids;
}

// All positions' logits, the prompt in chunks of at most `chunk`; pages out of order.
std::vector<float> forward(const model::Config& config, model::LayerSource& layers, const Stream& stream,
                           const std::vector<std::int32_t>& ids, std::int64_t chunk) {
  constexpr int kBlock = 16, kBlocks = 8;
  const model::ForwardLimits limits{
      .tokens = chunk, .sequences = 1, .logit_rows = chunk, .threads = stream.pool->size()};
  Ledger ledger;
  auto workspace = model::Workspace::create(config, limits, ledger);
  const auto row = model::kv_row(config, kBlocks, kBlock, DType::f32);
  auto memory = ledger.allocate(row.tag, row.device, row.bytes);
  EXPECT_TRUE(workspace.ok() && memory.ok());
  const kv::KvCache cache{memory->data(),
                          config.layers,
                          kBlocks,
                          DType::f32,
                          kBlock,
                          static_cast<int>(config.kv_heads),
                          static_cast<int>(config.head_dim)};
  const std::vector<std::int32_t> pages = {6, 1, 4, 0, 7, 2, 3, 5};
  const model::Qwen2 qwen(config, stream, kernels::Precision::exact);
  std::vector<float> all;
  for (std::int64_t begin = 0; begin < std::ssize(ids); begin += chunk) {
    const std::int64_t count = std::min(chunk, std::ssize(ids) - begin);
    std::vector<std::int32_t> positions, rows;
    for (std::int64_t i = 0; i < count; ++i) {
      positions.push_back(static_cast<std::int32_t>(begin + i));
      rows.push_back(static_cast<std::int32_t>(i));
    }
    const std::vector<kv::SequenceView> views = {
        {pages.data(), 0, static_cast<std::int32_t>(count), static_cast<std::int32_t>(begin + count)}};
    qwen.forward({std::span(ids).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
                  positions, views, rows},
                 layers, cache, *workspace);
    qwen.project(0, count, layers, *workspace);
    all.insert(all.end(), workspace->logits.f32(), workspace->logits.f32() + count * config.vocab);
  }
  return all;
}

void expect_near(const std::vector<float>& got, const std::vector<NaiveModel::Row>& expected) {
  double largest = 0, error = 0;
  std::size_t at = 0;
  for (const auto& row : expected) {
    for (const double value : row) {
      ASSERT_LT(at, got.size());
      const double difference = std::abs(static_cast<double>(got[at++]) - value);
      ASSERT_FALSE(std::isnan(difference));
      error = std::max(error, difference);
      largest = std::max(largest, std::abs(value));
    }
  }
  ASSERT_EQ(at, got.size());
  // Sums of up to 96 float32 terms in a chain of about twenty ops.
  EXPECT_LE(error, largest * 96 * 20 * 0x1p-24) << "of " << largest;
}

struct LoadCase {
  const char* name;
  quant::Format format;
  bool tied;
  const char* architecture;
  bool gguf;
  std::int64_t window = 0;  // of the last layer; 0: none, and what config.json says of windows does not count
};

class Loaded : public testing::TestWithParam<LoadCase> {};

// Packed as the kernels prefer, and every matrix in place: the same weights, the same logits.
TEST_P(Loaded, ForwardIsTheModelsDefinition) {
  const auto& p = GetParam();
  const std::uint64_t seed = fresh_seed();
  model::Config tiny = test::tiny_config();
  tiny.tied = p.tied;
  tiny.architecture = p.architecture;
  tiny.qkv_bias = tiny.architecture == "qwen2";
  tiny.interleaved_rope = p.gguf && !tiny.qkv_bias;
  tiny.sliding_window = p.window;
  tiny.max_window_layers = 1;
  const auto tensors = test::tiny_tensors(tiny, p.format, seed);
  const test::TempFolder folder;
  std::filesystem::path path = folder.path();
  if (p.gguf) {
    path = folder.write("tiny.gguf", test::gguf_bytes(tiny, tensors));
  } else {
    test::write_hf_folder(folder, tiny, tensors);
  }
  const auto checkpoint = formats::open_checkpoint(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().to_string();
  const auto config = model::config_from(*checkpoint);
  ASSERT_TRUE(config.ok()) << config.error().to_string();
  auto bound = model::bind_weights(*config, *checkpoint);
  ASSERT_TRUE(bound.ok()) << bound.error().to_string();
  const auto preferred = model::place_weights(*bound);
  auto in_place = preferred;
  for (auto& w : in_place) {
    if (w.placement == Placement::packed) {
      w.placement = Placement::in_place;
      w.bytes = w.weight.tensor.bytes;
    }
  }
  const auto ids = random_ids(seed, 41, config->vocab);
  const auto expected = NaiveModel(tiny, tensors).logits(ids);
  for (const auto& weights : {preferred, in_place}) {
    for (const int threads : {1, 3}) {
      Ledger ledger;
      ThreadPool pool(threads);
      const Stream stream{Backend::cpu, &pool};
      {
        std::int64_t last = 0, end = 0;
        auto loaded = ResidentWeights::load(
            *config, weights, checkpoint->weights,
            {.ledger = &ledger, .stream = stream, .progress = [&](std::int64_t done, std::int64_t total) {
               EXPECT_GE(done, last);
               last = done;
               end = total;
             }});
        ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
        EXPECT_EQ(last, end);
        EXPECT_LE(ledger.current(Device::host),
                  model::total_bytes(model::weight_rows(weights, true), Device::host, model::Lifetime::run));
        for (const std::int64_t chunk : {1, 7, 64}) {
          expect_near(forward(*config, **loaded, stream, ids, chunk), expected);
        }
      }
      EXPECT_EQ(ledger.current(Device::host), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Loaded,
                         testing::Values(LoadCase{"bf16", quant::Format::bf16, false, "qwen2", false},
                                         LoadCase{"bf16_tied", quant::Format::bf16, true, "qwen2", false},
                                         LoadCase{"f16", quant::Format::f16, false, "qwen2", false},
                                         LoadCase{"llama", quant::Format::f32, true, "llama", false},
                                         LoadCase{"window", quant::Format::bf16, false, "qwen2", false, 10},
                                         LoadCase{"llama_gguf", quant::Format::q8_0, true, "llama", true},
                                         LoadCase{"q8_0", quant::Format::q8_0, false, "qwen2", true},
                                         LoadCase{"q8_0_tied", quant::Format::q8_0, true, "qwen2", true},
                                         LoadCase{"q4_0", quant::Format::q4_0, false, "qwen2", true}),
                         [](const auto& load) { return load.param.name; });

TEST(ResidentWeights, NaNInANormOrBiasIsNamed) {
  const model::Config tiny = test::tiny_config();
  for (const char* name : {"model.layers.1.post_attention_layernorm.weight",
                           "model.layers.0.self_attn.q_proj.bias", "model.norm.weight"}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      auto tensors = test::tiny_tensors(tiny, quant::Format::bf16, 3);
      auto& tensor = tensors.at(name);
      auto values = tensor.values;
      values[5] = bad;
      tensor = test::encoded(tensor.spec, tensor.format, values);
      const test::TempFolder folder;
      test::write_hf_folder(folder, tiny, tensors);
      const auto checkpoint = formats::open_checkpoint(folder.path());
      ASSERT_TRUE(checkpoint.ok());
      Ledger ledger;
      ThreadPool pool(1);
      const auto loaded =
          ResidentWeights::load(tiny, model::place_weights(*model::bind_weights(tiny, *checkpoint)),
                                checkpoint->weights, {&ledger, {Backend::cpu, &pool}});
      ASSERT_FALSE(loaded.ok());
      EXPECT_EQ(loaded.error().code, ErrorCode::bad_file);
      EXPECT_NE(loaded.error().message.find(name), std::string::npos) << loaded.error().message;
      EXPECT_EQ(ledger.current(Device::host), 0);
    }
  }
}

TEST(ResidentWeights, RandomIsTheSameForAnyNumberOfThreads) {
  const model::Config config = test::tiny_config();
  const auto ids = random_ids(5, 9, config.vocab);
  for (const char* type : {"f32", "bf16", "q8_0", "q4_0"}) {
    const auto weights = model::place_weights(*model::weights_of_type(config, type));
    const auto logits = [&](int threads, std::uint64_t seed) {
      Ledger ledger;
      ThreadPool pool(threads);
      const Stream stream{Backend::cpu, &pool};
      auto made = ResidentWeights::random(config, weights, seed, {&ledger, stream});
      EXPECT_TRUE(made.ok());
      EXPECT_EQ(ledger.current(Device::host),
                model::total_bytes(model::weight_rows(weights, false), Device::host, model::Lifetime::run));
      ThreadPool one(1);
      return forward(config, **made, {Backend::cpu, &one}, ids, 16);
    };
    const auto first = logits(1, 7);
    EXPECT_TRUE(std::ranges::all_of(first, [](float x) { return std::isfinite(x); })) << type;
    EXPECT_EQ(first, logits(4, 7)) << type;
    EXPECT_NE(first, logits(1, 8)) << type;
  }
}

}  // namespace
}  // namespace snug::residency
