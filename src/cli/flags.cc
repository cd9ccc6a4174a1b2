#include "cli/flags.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "base/bytes.h"
#include "base/json.h"
#include "base/process.h"
#include "base/thread_pool.h"
#include "cli/hub.h"
#include "cli/terminal.h"

namespace snug::cli {

void OutputFlags::add(CLI::App& app) {
  app.add_flag("--json", json, "print exactly one JSON object");
  app.add_flag("--quiet", quiet, "no progress bars and no summary");
  app.add_option("--config", config, "JSON file with flags as keys")->type_name("FILE");
}

void ModelFlags::add(CLI::App& app) {
  app.add_option("MODEL", model,
                 "Hugging Face folder, .gguf file, pulled hub id, or random:qwen2.5-7b[:q4_0]")
      ->required();
  app.add_option("--device", device, "auto, cpu or cuda")->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--dtype,--torch-dtype", dtype,
                 "arithmetic: auto, bfloat16, float16, or float32 (exact: activations are not rounded)")
      ->check(CLI::IsMember({"auto", "bfloat16", "float16", "float32"}));
  app.add_option("--kv-cache-dtype", kv_cache_dtype, "auto, float16, bfloat16 or float32")
      ->check(CLI::IsMember({"auto", "float16", "bfloat16", "float32"}));
  app.add_option("--host-memory", host_memory, "bytes of host memory for the whole process, as 12GiB")
      ->type_name("SIZE");
  app.add_option("--gpu-memory", gpu_memory, "bytes of GPU memory, as 8GiB")->type_name("SIZE");
  app.add_option("--max-model-len", max_model_len, "most tokens of one sequence, prompt and answer")
      ->check(CLI::PositiveNumber);
  app.add_option("--max-num-seqs", max_num_seqs, "most sequences at once")->check(CLI::Range(1, 1024));
  app.add_option("--max-num-batched-tokens", max_num_batched_tokens,
                 "most tokens of one step: the prefill chunk")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--threads", threads, "CPU threads; 0 uses all cores")->check(CLI::Range(0, 1024));
  app.add_option("--random-seed", random_seed, "seed of the weights of random: models")
      ->check(CLI::NonNegativeNumber);
}

std::filesystem::path hub_cache_dir() {
  if (const char* dir = std::getenv("SNUG_CACHE"); dir != nullptr && *dir != '\0') return dir;
  if (const char* dir = std::getenv("XDG_CACHE_HOME"); dir != nullptr && *dir != '\0') {
    return std::filesystem::path(dir) / "snug" / "hub";
  }
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home != nullptr ? home : ".") / ".cache" / "snug" / "hub";
}

Result<std::string> ModelFlags::resolve() const {
  if (model.starts_with("random:") || std::filesystem::exists(model)) return model;
  if (const auto pulled = find_pulled(hub_cache_dir(), model, "main")) return pulled->string();
  return Error{ErrorCode::bad_file, fmt::format("{}: no such file or folder", model),
               is_repo_id(model)
                   ? fmt::format("if it is a hub id, fetch it with: snug pull {}", model)
                   : std::string("give a Hugging Face folder, a .gguf file or a hub id (org/name)")};
}

Result<llm::Skeleton> ModelFlags::open(const OutputFlags& output) const {
  SNUG_ASSIGN(const std::string path, resolve());
  SNUG_ASSIGN(llm::Skeleton skeleton, llm::open_skeleton(path));
  if (skeleton.checkpoint && !output.quiet) {
    for (const auto& warning : skeleton.checkpoint->weights.warnings) print_note("warning: " + warning);
  }
  return skeleton;
}

namespace {

Result<DType> kv_dtype(const ModelFlags& flags) {
  const std::string& wished = flags.kv_cache_dtype != "auto" ? flags.kv_cache_dtype : flags.dtype;
  if (wished == "float32") return DType::f32;
  if (wished == "bfloat16") return DType::bf16;
  return DType::f16;  // more exact than bf16 where keys and values are of ordinary size; saturates, never
                      // overflows
}

}  // namespace

namespace {

// null: the model runs on the CPU, as --device says or because there is no other way; that is then said.
Result<std::shared_ptr<Gpu>> open_gpu(const ModelFlags& flags) {
  if (flags.device == "cpu") return std::shared_ptr<Gpu>();
  auto gpu = Gpu::open();
  if (gpu) return std::shared_ptr<Gpu>(std::move(*gpu));
  const Error& why = gpu.error();
  if (flags.device == "cuda") return Error{why.code, "--device cuda: " + why.message, why.remedy};
  if (gpu_was_built()) print_note("running on the CPU: " + why.to_string());
  return std::shared_ptr<Gpu>();
}

}  // namespace

Result<llm::LoadOptions> ModelFlags::load_options(const llm::Skeleton& skeleton) const {
  llm::LoadOptions options;
  SNUG_ASSIGN(options.gpu, open_gpu(*this));
  if (!host_memory.empty()) {
    SNUG_ASSIGN(options.budget.host, parse_bytes(host_memory));
  }
  if (!gpu_memory.empty()) {
    SNUG_ASSIGN(options.budget.gpu, parse_bytes(gpu_memory));
  }
  if (options.gpu != nullptr) {
    options.budget.gpu_available = options.gpu->free_bytes() + options.gpu->context_bytes();
    if (kv_cache_dtype != "auto" && kv_cache_dtype != (dtype == "float32" ? "float32" : "bfloat16")) {
      return Error{
          ErrorCode::usage,
          fmt::format("--kv-cache-dtype {}: on a GPU the cache has the arithmetic's type", kv_cache_dtype),
          "use auto, or --device cpu"};
    }
  }
  options.budget.host_available = available_bytes() + resident_bytes();
  auto& wishes = options.wishes;
  wishes.max_model_len = max_model_len;
  wishes.max_num_seqs = max_num_seqs;
  wishes.max_num_batched_tokens = max_num_batched_tokens;
  SNUG_ASSIGN(wishes.kv_dtype, kv_dtype(*this));
  wishes.threads = threads > 0 ? threads : available_cores();
  options.precision = dtype == "float32" ? kernels::Precision::exact : kernels::Precision::fast;
  options.random_seed = random_seed;
  if (max_model_len && *max_model_len > skeleton.config.max_positions) {
    return Error{ErrorCode::usage,
                 fmt::format("--max-model-len {}: the model knows {} positions", *max_model_len,
                             skeleton.config.max_positions),
                 "ask for fewer, or use a checkpoint with YaRN (rope_scaling in config.json)"};
  }
  return options;
}

std::string ModelFlags::arithmetic() const {
  return dtype == "float32" ? "float32" : dtype;
}

void SamplingFlags::add(CLI::App& app) {
  app.add_option("--max-tokens", max_tokens, "most tokens to generate");
  app.add_option("--temperature", temperature, "0 is greedy");
  app.add_option("--top-p", top_p, "smallest set of tokens with this probability");
  app.add_option("--top-k", top_k, "only the k most likely tokens; 0 or -1: all");
  app.add_option("--min-p", min_p, "only tokens at least this likely, relative to the best");
  app.add_option("--repetition-penalty", repetition_penalty, "over prompt and answer; 1 is none");
  app.add_option("--presence-penalty", presence_penalty, "subtracted from tokens already generated");
  app.add_option("--frequency-penalty", frequency_penalty, "subtracted once per occurrence");
  app.add_option("--logit-bias", logit_bias, "JSON object from token id to bias, as {\"1234\": -100}");
  app.add_option("--seed", seed, "the same seed gives the same text")->check(CLI::NonNegativeNumber);
  app.add_option("--stop", stop, "text that ends the answer; repeatable")->allow_extra_args(false);
  app.add_option("--n", n, "answers to make");
  app.add_option("--logprobs", logprobs, "report log probabilities, with this many alternatives");
  app.add_flag("--ignore-eos", ignore_eos, "go on past the end token");
}

Result<engine::SamplingParams> SamplingFlags::apply(engine::SamplingParams p) const {
  p.max_tokens = max_tokens.value_or(p.max_tokens);
  p.temperature = temperature.value_or(p.temperature);
  p.top_p = top_p.value_or(p.top_p);
  p.top_k = top_k.value_or(p.top_k);
  p.min_p = min_p.value_or(p.min_p);
  p.repetition_penalty = repetition_penalty.value_or(p.repetition_penalty);
  p.presence_penalty = presence_penalty.value_or(p.presence_penalty);
  p.frequency_penalty = frequency_penalty.value_or(p.frequency_penalty);
  p.n = n.value_or(p.n);
  if (seed) p.seed = seed;
  if (logprobs) p.logprobs = logprobs;
  p.stop = stop;
  p.ignore_eos = ignore_eos;
  if (!logit_bias.empty()) {
    const Error bad{ErrorCode::usage,
                    fmt::format("--logit-bias {}: must be an object from token ids to numbers", logit_bias),
                    "write {\"1234\": -100}"};
    const auto bias = parse_json(logit_bias, "--logit-bias", ErrorCode::usage);
    if (!bias.ok() || !bias->is_object()) return bad;
    for (const auto& [key, value] : bias->items()) {
      std::int32_t id = 0;
      const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (code != std::errc() || end != key.data() + key.size() || !value.is_number()) return bad;
      p.logit_bias[id] = value.get<float>();
    }
  }
  return p;
}

Result<std::vector<std::int32_t>> parse_token_ids(const std::string& text) {
  std::vector<std::int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    if (*at == ',' || *at == ' ' || *at == '[' || *at == ']') {
      ++at;
      continue;
    }
    std::int32_t id = 0;
    const auto [next, code] = std::from_chars(at, end, id);
    if (code != std::errc()) {
      return Error{ErrorCode::usage, fmt::format("--token-ids {}: '{}' is not a token id", text, *at),
                   "write numbers with commas between, as 5,6,7"};
    }
    ids.push_back(id);
    at = next;
  }
  return ids;
}

Status check_token_ids(const std::vector<std::int32_t>& ids, std::int64_t vocab) {
  for (const auto id : ids) {
    if (id >= 0 && id < vocab) continue;
    return Error{ErrorCode::usage, fmt::format("token id {} is outside the vocabulary of {}", id, vocab),
                 "use ids of this model's tokenizer"};
  }
  return {};
}

Json memory_report(const llm::LLM& llm) {
  const auto& plan = llm.plan();
  const auto by_device = [](std::int64_t gpu, std::int64_t host, std::int64_t pinned) {
    return Json{{"gpu0", gpu}, {"host", host}, {"pinned", pinned}, {"disk", 0}};
  };
  const auto pinned = model::total_bytes(plan.rows, Device::pinned, model::Lifetime::run);
  Json report = {{"budget", by_device(plan.budget_gpu, plan.budget_host, pinned)},
                 {"predicted", by_device(plan.predicted_gpu, plan.predicted_host, pinned)},
                 {"peak", by_device(llm.ledger().peak(Device::gpu0), peak_resident_bytes(),
                                    llm.ledger().peak(Device::pinned))}};
  // What the driver has counted since before the first CUDA call.
  if (llm.gpu() != nullptr) report["gpu0_in_use"] = llm.gpu()->bytes_taken();
  return report;
}

}  // namespace snug::cli
