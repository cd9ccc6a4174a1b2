// From a row of logits to a token. Host code; a row's result depends on that row and its request alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/sampling_params.h"
#include "kernels/likely.h"

namespace snug::engine {

struct TokenLogprob {
  std::int32_t token = 0;
  float logprob =
      0;  // of the model's own distribution: before penalties, bias, temperature and filters, as OpenAI's
};

struct Sampled {
  std::int32_t token = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;  // the most likely, in falling order; as many as params.logprobs asks
};

// What penalties count. Kept per sequence, updated as tokens come.
class TokenCounts {
 public:
  void add_prompt(std::span<const std::int32_t> ids);
  void add_output(std::int32_t id);
  struct Count {
    std::int32_t output = 0;
    bool prompt = false;
  };
  const std::unordered_map<std::int32_t, Count>& counts() const { return counts_; }

 private:
  std::unordered_map<std::int32_t, Count> counts_;
};

// Reusable per thread; holds scratch of the vocabulary's size.
class Sampler {
 public:
  // `logits` (vocab) is changed in place. `seed` and `step` (0 for a sequence's first new token) fix the
  // draw: the same pair gives the same token whatever else runs. Only ids < `usable_vocab` can be drawn (the
  // padded tail of the vocabulary has no text). Ties in greedy go to the lowest id. Order (vLLM's):
  // repetition, frequency and presence penalties, logit bias, temperature, min_p, top_k, top_p, draw. failed
  // "non-finite logits …" if any usable logit is NaN or +inf, or all are -inf.
  Result<Sampled> sample(std::span<float> logits, const SamplingParams& params, const TokenCounts& counts,
                         std::uint64_t seed, std::uint64_t step, int usable_vocab);

  // The same result from the most likely tokens alone (kernels/likely.h): every token that is not among them
  // has a smaller logit, or there is none (`is_all`). `normalizer` is the log of the sum of exp of all
  // logits. Nothing where they do not suffice.
  std::optional<Sampled> sample_likely(std::span<const kernels::LikelyToken> likely, bool is_all,
                                       double normalizer, const SamplingParams& params,
                                       const TokenCounts& counts, std::uint64_t seed, std::uint64_t step);
  // Whether they usually suffice for such a request.
  static bool takes_likely(const SamplingParams& params);

 private:
  // The token of candidates_ that top_k, top_p and the draw leave; min_p has been applied.
  std::int32_t choose(float highest, const SamplingParams& params, std::uint64_t seed, std::uint64_t step);

  std::vector<std::pair<float, std::int32_t>> candidates_;
};

}  // namespace snug::engine
