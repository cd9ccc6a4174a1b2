// Speed of a loaded model: prefill and decode, with the bytes and operations behind them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llm/llm.h"

namespace snug::llm {

struct BenchmarkOptions {
  std::int64_t prompt = 512;
  std::int64_t generate = 64;
  std::int64_t batch = 1;
  int repeat = 3;
};

// Medians over the repeats, after one warm-up.
struct BenchmarkResult {
  double prefill_tok_s = 0;  // prompt tokens of all sequences, up to the last one's first new token
  double decode_tok_s = 0;   // new tokens of all sequences after that, until the first ends
  double decode_gbps = 0;    // weights and KV read for them
  double prefill_tflops = 0;
  std::string logits_hash;  // of a fixed short input: the same build and model give the same hash
};

Result<BenchmarkResult> run_benchmark(LLM& llm, const BenchmarkOptions& options);

}  // namespace snug::llm
