// Flags that several commands share, and what they turn into.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampling_params.h"
#include "llm/llm.h"
#include "llm/skeleton.h"

namespace snug::cli {

// --json, --quiet, --config.
struct OutputFlags {
  bool json = false;
  bool quiet = false;
  std::string config;  // read before parsing (settings.h)
  void add(CLI::App& app);
};

// MODEL and how to run it.
struct ModelFlags {
  std::string model;
  std::string device = "auto";
  std::string dtype = "auto";
  std::string kv_cache_dtype = "auto";
  std::string host_memory, gpu_memory;  // sizes; empty: what is available
  std::optional<std::int64_t> max_model_len, max_num_batched_tokens;
  std::int64_t max_num_seqs = 1;
  int threads = 0;  // 0: all cores this process may use
  std::uint64_t random_seed = 1;

  void add(CLI::App& app);
  // MODEL as a path or random: name; a hub id is looked up among the pulled ones. bad_file if it is neither.
  Result<std::string> resolve() const;
  // Opens what resolve() finds; the checkpoint's warnings go to stderr.
  Result<llm::Skeleton> open(const OutputFlags& output) const;
  // usage error for values that make no sense here, such as --device cuda in a CPU-only build.
  Result<llm::LoadOptions> load_options(const llm::Skeleton& skeleton) const;
  // The number type of the arithmetic and of the KV cache, for reports.
  std::string arithmetic() const;
};

// The OpenAI and vLLM sampling flags; what is not given keeps the checkpoint's default.
struct SamplingFlags {
  std::optional<int> max_tokens, top_k, n, logprobs;
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<std::uint64_t> seed;
  std::string logit_bias;  // {"1234": -100}
  std::vector<std::string> stop;
  bool ignore_eos = false;

  void add(CLI::App& app);
  Result<engine::SamplingParams> apply(engine::SamplingParams defaults) const;
};

// "5,6,7".
Result<std::vector<std::int32_t>> parse_token_ids(const std::string& text);

// usage error for ids outside a vocabulary: asked before weights are read.
Status check_token_ids(const std::vector<std::int32_t>& ids, std::int64_t vocab);

// {budget, predicted, peak}, each {gpu0, host, pinned, disk} in bytes.
Json memory_report(const llm::LLM& llm);

// Folder of pulled models: $SNUG_CACHE, else $XDG_CACHE_HOME/snug/hub, else ~/.cache/snug/hub.
std::filesystem::path hub_cache_dir();

}  // namespace snug::cli
