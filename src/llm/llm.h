// The front door: text or token ids in, a text stream out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "core/ledger.h"
#include "engine/engine.h"
#include "llm/generation.h"
#include "llm/skeleton.h"
#include "plan/plan.h"
#include "residency/resident_weights.h"

namespace snug::llm {

struct LoadOptions {
  plan::Budget budget;
  plan::Wishes wishes;  // wishes.threads is the pool's size
  kernels::Precision precision = kernels::Precision::fast;
  std::uint64_t random_seed = 1;  // of random: models
  residency::Progress progress;   // of loading
  std::int64_t server_bytes = 0;  // host memory that a server takes beside the model
  std::shared_ptr<Gpu> gpu;       // set: the model runs there (wishes.backend is cuda)
};

struct Completion {
  std::vector<std::int32_t> token_ids;  // generated, an eos that ended it included
  std::string text;                     // without special tokens, and up to a stop string
  engine::FinishReason finish_reason = engine::FinishReason::stop;
  std::vector<engine::Sampled> logprobs;   // by token, where asked
  std::vector<std::string> logprob_texts;  // the text each of those tokens stands for
};

struct Timings {
  double load_s = 0;
  double prefill_s = 0;  // to the first token
  double decode_s = 0;   // from the first token to the last
};

struct GenerateResult {
  std::vector<Completion> completions;  // params.n
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;  // of all answers
  double prefill_s = 0, decode_s = 0;
};

// Called with each new piece of text of answer `index`; false ends that answer ("stop").
using TextSink = std::function<bool(int index, std::string_view text)>;

class LLM {
 public:
  // Plans, then loads. does_not_fit before anything large is allocated.
  static Result<std::unique_ptr<LLM>> load(Skeleton skeleton, LoadOptions options);

  // Runs one request to its end. Other requests of this LLM must not be running.
  Result<GenerateResult> generate(const GenerateRequest& request, const TextSink& sink = {});

  const Skeleton& skeleton() const { return skeleton_; }
  const plan::Plan& plan() const { return plan_; }
  const Ledger& ledger() const { return ledger_; }
  Gpu* gpu() const { return gpu_.get(); }  // null: the model runs on the CPU
  engine::Engine& engine() { return *engine_; }
  double load_seconds() const { return load_s_; }

 private:
  LLM(Skeleton skeleton, LoadOptions options)
      : skeleton_(std::move(skeleton)), gpu_(std::move(options.gpu)), pool_(options.wishes.threads) {}

  Skeleton skeleton_;
  std::shared_ptr<Gpu> gpu_;  // these two before what they must outlive
  Ledger ledger_;
  ThreadPool pool_;
  plan::Plan plan_;
  Allocation blas_workspace_;
  std::unique_ptr<residency::ResidentWeights> weights_;
  std::unique_ptr<engine::Engine> engine_;
  double load_s_ = 0;
};

}  // namespace snug::llm
