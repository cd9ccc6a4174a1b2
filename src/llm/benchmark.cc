#include "llm/benchmark.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>

#include "base/rng.h"

namespace snug::llm {
namespace {

using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<std::int32_t> random_ids(std::int64_t count, int vocab, std::uint64_t stream) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<std::int32_t>(random_bits(7, stream, static_cast<std::uint64_t>(i)) %
                                            static_cast<unsigned>(vocab)));
  }
  return ids;
}

// Weights that a token is multiplied with: all matrices, but an untied embedding is only looked up.
struct Work {
  double weight_bytes = 0, weight_elements = 0, head_elements = 0;
};

Work work_of(const Skeleton& skeleton) {
  Work work;
  for (const auto& w : skeleton.weights) {
    const auto& spec = w.weight.spec;
    if (!spec.is_matrix() || (spec.role == model::Role::embedding && !skeleton.config.tied)) continue;
    work.weight_bytes += static_cast<double>(w.bytes);
    const bool head = spec.role == model::Role::embedding || spec.role == model::Role::lm_head;
    (head ? work.head_elements : work.weight_elements) += static_cast<double>(spec.elements());
  }
  return work;
}

struct Run {
  double prefill_s = 0, decode_s = 0;
  std::int64_t decode_tokens = 0, decode_steps = 0;
};

Result<Run> run_once(LLM& llm, const BenchmarkOptions& options, int round) {
  engine::Engine& engine = llm.engine();
  engine::SamplingParams params;
  params.temperature = 0;
  params.ignore_eos = true;
  params.max_tokens = static_cast<int>(options.generate);
  for (std::int64_t i = 0; i < options.batch; ++i) {
    const auto stream = static_cast<std::uint64_t>(round * 1000 + i);
    SNUG_TRY(
        engine.submit({random_ids(options.prompt, llm.skeleton().usable_vocab(), stream), params, 0, {}}));
  }
  Run run;
  std::int64_t started = 0;
  const auto start = Clock::now();
  auto decode_start = start;
  std::vector<engine::RequestId> seen;
  bool ended = false;  // a sequence, since all have started
  while (!engine.idle()) {
    const auto events = engine.step();
    const bool counts = !ended;
    for (const auto& event : events) {
      if (event.error) return *event.error;
      if (!counts) continue;
      ended = ended || (event.finished && started == options.batch);
      if (std::ranges::find(seen, event.request) == seen.end()) {
        seen.push_back(event.request);
        if (++started < options.batch) continue;
        decode_start = Clock::now();
        run.prefill_s = std::chrono::duration<double>(decode_start - start).count();
        run.decode_tokens = 0, run.decode_steps = -1;
      } else {
        ++run.decode_tokens;
      }
    }
    if (!counts) continue;
    ++run.decode_steps;
    run.decode_s = std::chrono::duration<double>(Clock::now() - decode_start).count();
  }
  return run;
}

Result<std::string> hash_logits(LLM& llm) {
  const std::int64_t vocab = llm.skeleton().config.vocab;
  std::uint64_t hash = 0;
  const auto ids =
      random_ids(std::min<std::int64_t>(16, llm.engine().max_model_len()), llm.skeleton().usable_vocab(), 1);
  SNUG_TRY(llm.engine().evaluate(ids, [&](std::int64_t, std::int64_t count, const float* logits) -> Status {
    for (std::int64_t i = 0; i < count * vocab; ++i)
      hash = mix64(hash ^ std::bit_cast<std::uint32_t>(logits[i]));
    return {};
  }));
  return fmt::format("{:016x}", hash);
}

}  // namespace

Result<BenchmarkResult> run_benchmark(LLM& llm, const BenchmarkOptions& options) {
  const model::Config& config = llm.skeleton().config;
  const Work work = work_of(llm.skeleton());
  const auto prompt = static_cast<double>(options.prompt), batch = static_cast<double>(options.batch);
  // A multiply and an add per weight and token; attention multiplies q·k and p·v over the causal half.
  const double attention =
      4.0 * static_cast<double>(config.layers * config.q_dim()) * prompt * (prompt + 1) / 2;
  const double prefill_flop =
      batch * (2.0 * work.weight_elements * prompt + attention + 2.0 * work.head_elements);
  const double kv_bytes_per_token = static_cast<double>(
      kv::bytes_per_block(config.layers, config.kv_heads, config.head_dim, 1, llm.plan().kv_dtype));

  BenchmarkResult result;
  std::vector<double> prefill, decode, gbps, tflops;
  for (int round = 0; round <= options.repeat; ++round) {
    SNUG_ASSIGN(const Run run, run_once(llm, options, round));
    if (round == 0) continue;
    prefill.push_back(prompt * batch / run.prefill_s);
    tflops.push_back(prefill_flop * 1e-12 / run.prefill_s);
    if (run.decode_tokens == 0) continue;
    decode.push_back(static_cast<double>(run.decode_tokens) / run.decode_s);
    const double context = prompt + static_cast<double>(options.generate) / 2;
    const double bytes = static_cast<double>(run.decode_steps) * work.weight_bytes +
                         static_cast<double>(run.decode_tokens) * context * kv_bytes_per_token;
    gbps.push_back(bytes * 1e-9 / run.decode_s);
  }
  result.prefill_tok_s = median(prefill);
  result.prefill_tflops = median(tflops);
  if (!decode.empty()) result.decode_tok_s = median(decode), result.decode_gbps = median(gbps);
  SNUG_ASSIGN(result.logits_hash, hash_logits(llm));
  return result;
}

}  // namespace snug::llm
