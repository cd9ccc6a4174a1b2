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

bool penalizes(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0;
}

float penalized(float raw, const SamplingParams& params, const TokenCounts::Count& count) {
  if (raw == kNegativeInfinity) return raw;
  double logit = raw > 0 ? raw / params.repetition_penalty : raw * params.repetition_penalty;
  if (count.output > 0) logit -= params.frequency_penalty * count.output + params.presence_penalty;
  return clamped(logit);
}

void penalize(std::span<float> logits, const SamplingParams& params, const TokenCounts& counts) {
  for (const auto& [id, count] : counts.counts()) {
    // Prompts hold ids that cannot be drawn, such as image placeholders.
    if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) continue;
    float& slot = logits[static_cast<std::size_t>(id)];
    slot = penalized(slot, params, count);
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

// Leaves the k most likely, in falling order.
void keep_top_k(std::vector<Candidate>& candidates, int k) {
  if (k <= 0) return;
  const auto end = candidates.begin() + std::min<std::ptrdiff_t>(k, std::ssize(candidates));
  std::partial_sort(candidates.begin(), end, candidates.end(), more_likely);
  candidates.erase(end, candidates.end());
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

// What min_p asks of a logit: the weight of the most likely is 1, so its share of that is a bound.
double least_logit(float highest, const SamplingParams& params) {
  return params.min_p > 0 ? highest + params.temperature * std::log(params.min_p)
                          : -std::numeric_limits<double>::infinity();
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
  if (params.logprobs) {
    normalizer = log_sum_exp(usable);
    sampled.top = top_logprobs(usable, *params.logprobs, normalizer, candidates_);
    if (penalizes(params) || !params.logit_bias.empty()) raw.emplace(usable.begin(), usable.end());
  }

  if (penalizes(params)) penalize(usable, params, counts);
  for (const auto& [id, bias] : params.logit_bias) {
    if (id >= 0 && static_cast<std::size_t>(id) < usable.size()) usable[static_cast<std::size_t>(id)] += bias;
  }

  sampled.token = argmax(usable);
  if (params.temperature > 0) {
    const float highest = usable[static_cast<std::size_t>(sampled.token)];
    const double lowest = least_logit(highest, params);
    candidates_.clear();
    for (std::size_t i = 0; i < usable.size(); ++i) {
      if (usable[i] >= lowest && usable[i] != kNegativeInfinity) {
        candidates_.emplace_back(usable[i], static_cast<std::int32_t>(i));
      }
    }
    sampled.token = choose(highest, params, seed, step);
  }

  if (params.logprobs) {
    const auto token = static_cast<std::size_t>(sampled.token);
    sampled.logprob = static_cast<float>((raw ? (*raw)[token] : usable[token]) - normalizer);
  }
  return sampled;
}

std::int32_t Sampler::choose(float highest, const SamplingParams& params, std::uint64_t seed,
                             std::uint64_t step) {
  const Weights weight(highest, params.temperature);
  keep_top_k(candidates_, params.top_k);
  keep_top_p(candidates_, params.top_p, weight);
  return draw(candidates_, weight, random_uniform(seed, kDrawStream, step));
}

bool Sampler::takes_likely(const SamplingParams& params) {
  // Nothing may raise a token's logit above those that are more likely now.
  return params.logit_bias.empty() && params.repetition_penalty >= 1 && params.presence_penalty >= 0 &&
         params.frequency_penalty >= 0 && params.logprobs.value_or(0) <= kernels::kLikelyTokens &&
         (params.temperature == 0 || (params.top_k > 0 && params.top_k <= kernels::kLikelyTokens));
}

std::optional<Sampled> Sampler::sample_likely(std::span<const kernels::LikelyToken> likely, bool is_all,
                                              double normalizer, const SamplingParams& params,
                                              const TokenCounts& counts, std::uint64_t seed,
                                              std::uint64_t step) {
  if (likely.empty() || !takes_likely(params)) return std::nullopt;
  std::vector<Candidate> raw;
  for (const auto& [logit, id] : likely) raw.emplace_back(logit, id);
  std::sort(raw.begin(), raw.end(), more_likely);
  std::vector<Candidate> all = raw;
  if (penalizes(params)) {
    for (auto& [logit, id] : all) {
      const auto count = counts.counts().find(id);
      if (count != counts.counts().end()) logit = penalized(logit, params, count->second);
    }
    std::sort(all.begin(), all.end(), more_likely);
  }
  // Tokens that are not here stay below the smallest logit here: what was lowered beyond that is uncertain.
  const std::size_t needed = params.temperature == 0 ? 1 : static_cast<std::size_t>(params.top_k);
  if (!is_all && (all.size() < needed || all[needed - 1].first < raw.back().first)) return std::nullopt;

  Sampled sampled;
  sampled.token = all.front().second;
  const float highest = all.front().first;
  if (params.temperature > 0) {
    const double lowest = least_logit(highest, params);
    candidates_.clear();
    for (const Candidate& c : all) {
      if (c.first >= lowest && c.first != kNegativeInfinity) candidates_.push_back(c);
    }
    sampled.token = choose(highest, params, seed, step);
  }
  if (params.logprobs) {
    const auto logprob = [&](const Candidate& c) {
      return TokenLogprob{c.second, static_cast<float>(c.first - normalizer)};
    };
    for (int i = 0; i < *params.logprobs && i < std::ssize(raw); ++i) {
      sampled.top.push_back(logprob(raw[static_cast<std::size_t>(i)]));
    }
    const auto own = std::ranges::find(raw, sampled.token, &Candidate::second);
    sampled.logprob = logprob(*own).logprob;
  }
  return sampled;
}

}  // namespace snug::engine
