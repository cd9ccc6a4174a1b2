#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rng.h"

namespace snug::engine {
namespace {

constexpr std::uint64_t kDrawStream = 0x736E7567;  // apart from other users of a request's seed
constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

using Candidate = std::pair<float, std::int32_t>;  // logit, id

// Falling logits; ties by rising id, so that every choice is the same on every machine.
bool more_likely(const Candidate& a, const Candidate& b) {
  return a.first > b.first || (a.first == b.first && a.second < b.second);
}

Status check_finite(std::span<const float> logits) {
  bool any_finite = false;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    if (std::isnan(logit) || logit == std::numeric_limits<float>::infinity()) {
      return Error{ErrorCode::failed, fmt::format("non-finite logits: token {} has {}", i, logit),
                   "the weights or a kernel are at fault: check the model's files"};
    }
    any_finite |= logit != kNegativeInfinity;
  }
  if (any_finite) return {};
  return Error{ErrorCode::failed, "non-finite logits: every token has -inf",
               "the weights or a kernel are at fault: check the model's files"};
}

// log(sum(exp(logits))): what turns a logit into a log-probability.
double log_sum_exp(std::span<const float> logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - highest);
  return highest + std::log(sum);
}

// A finite logit stays finite, however extreme the penalty.
float clamped(double logit) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(logit, -kLargest, kLargest));
}

void penalize(std::span<float> logits, const SamplingParams& params, const TokenCounts& counts) {
  for (const auto& [id, count] : counts.counts()) {
    // Prompts hold ids that cannot be drawn, such as image placeholders.
    if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) continue;
    float& slot = logits[static_cast<std::size_t>(id)];
    if (slot == kNegativeInfinity) continue;
    double logit = slot > 0 ? slot / params.repetition_penalty : slot * params.repetition_penalty;
    if (count.output > 0) logit -= params.frequency_penalty * count.output + params.presence_penalty;
    slot = clamped(logit);
  }
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int count, double normalizer,
                                       std::vector<Candidate>& scratch) {
  scratch.clear();
  for (std::size_t i = 0; i < logits.size(); ++i)
    scratch.emplace_back(logits[i], static_cast<std::int32_t>(i));
  const auto end = scratch.begin() + std::min<std::ptrdiff_t>(count, std::ssize(scratch));
  std::partial_sort(scratch.begin(), end, scratch.end(), more_likely);
  std::vector<TokenLogprob> top;
  for (auto it = scratch.begin(); it != end; ++it) {
    top.push_back({it->second, static_cast<float>(it->first - normalizer)});
  }
  return top;
}

std::int32_t argmax(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// exp((logit - highest) / temperature): a probability up to a common factor.
class Weights {
 public:
  Weights(float highest, double temperature) : highest_(highest), temperature_(temperature) {}
  double operator()(float logit) const { return std::exp((logit - highest_) / temperature_); }

 private:
  double highest_, temperature_;
};

// Leaves the k most likely.
void keep_top_k(std::vector<Candidate>& candidates, int k) {
  if (k <= 0 || static_cast<std::size_t>(k) >= candidates.size()) return;
  std::nth_element(candidates.begin(), candidates.begin() + (k - 1), candidates.end(), more_likely);
  candidates.resize(static_cast<std::size_t>(k));
}

// Leaves the smallest set of most likely tokens whose share reaches top_p, in falling order.
void keep_top_p(std::vector<Candidate>& candidates, double top_p, const Weights& weight) {
  if (top_p >= 1) return;
  double total = 0;
  for (const Candidate& c : candidates) total += weight(c.first);
  const double target = top_p * total;
  // Sort only as many as are needed: a head that doubles until its share is enough.
  double reached = 0;
  std::size_t sorted = 0, kept = 0;
  for (std::size_t head = 64; kept == 0; head *= 4) {
    const std::size_t end = std::min(head, candidates.size());
    const auto at = [&](std::size_t i) { return candidates.begin() + static_cast<std::ptrdiff_t>(i); };
    if (end < candidates.size()) std::nth_element(at(sorted), at(end), candidates.end(), more_likely);
    std::sort(at(sorted), at(end), more_likely);
    for (; sorted < end && kept == 0; ++sorted) {
      reached += weight(candidates[sorted].first);
      if (reached >= target) kept = sorted + 1;
    }
    if (end == candidates.size() && kept == 0) kept = end;  // rounding
  }
  candidates.resize(kept);
}

std::int32_t draw(const std::vector<Candidate>& candidates, const Weights& weight, double uniform) {
  double total = 0;
  for (const Candidate& c : candidates) total += weight(c.first);
  double left = uniform * total;
  std::int32_t last = candidates.front().second;
  for (const Candidate& c : candidates) {
    const double w = weight(c.first);
    if (w == 0) continue;  // never drawn, not even by rounding at the end
    last = c.second;
    left -= w;
    if (left < 0) break;
  }
  return last;
}

}  // namespace

void TokenCounts::add_prompt(std::span<const std::int32_t> ids) {
  for (const std::int32_t id : ids) counts_[id].prompt = true;
}

void TokenCounts::add_output(std::int32_t id) {
  ++counts_[id].output;
}

Result<Sampled> Sampler::sample(std::span<float> logits, const SamplingParams& params,
                                const TokenCounts& counts, std::uint64_t seed, std::uint64_t step,
                                int usable_vocab) {
  const std::span<float> usable =
      logits.first(std::min(logits.size(), static_cast<std::size_t>(usable_vocab)));
  SNUG_TRY(check_finite(usable));

  Sampled sampled;
  double normalizer = 0;
  std::optional<std::vector<float>>
      raw;  // the model's own logits, where they are reported and about to change
  const bool penalized =
      params.repetition_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0;
  if (params.logprobs) {
    normalizer = log_sum_exp(usable);
    sampled.top = top_logprobs(usable, *params.logprobs, normalizer, candidates_);
    if (penalized || !params.logit_bias.empty()) raw.emplace(usable.begin(), usable.end());
  }

  if (penalized) penalize(usable, params, counts);
  for (const auto& [id, bias] : params.logit_bias) {
    if (id >= 0 && static_cast<std::size_t>(id) < usable.size()) usable[static_cast<std::size_t>(id)] += bias;
  }

  sampled.token = argmax(usable);
  if (params.temperature > 0) {
    const float highest = usable[static_cast<std::size_t>(sampled.token)];
    const Weights weight(highest, params.temperature);
    // min_p first: the weight of the most likely is 1, so its share of that is a bound on the logit.
    const double lowest = params.min_p > 0 ? highest + params.temperature * std::log(params.min_p)
                                           : -std::numeric_limits<double>::infinity();
    candidates_.clear();
    for (std::size_t i = 0; i < usable.size(); ++i) {
      if (usable[i] >= lowest && usable[i] != kNegativeInfinity) {
        candidates_.emplace_back(usable[i], static_cast<std::int32_t>(i));
      }
    }
    keep_top_k(candidates_, params.top_k);
    keep_top_p(candidates_, params.top_p, weight);
    sampled.token = draw(candidates_, weight, random_uniform(seed, kDrawStream, step));
  }

  if (params.logprobs) {
    const auto token = static_cast<std::size_t>(sampled.token);
    sampled.logprob = static_cast<float>((raw ? (*raw)[token] : usable[token]) - normalizer);
  }
  return sampled;
}

}  // namespace snug::engine
