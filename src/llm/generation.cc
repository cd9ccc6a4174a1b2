#include "llm/generation.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/rng.h"

namespace snug::llm {

Result<Generation> Generation::submit(const GenerateRequest& request, const Skeleton& skeleton,
                                      engine::Engine& engine) {
  SNUG_TRY(engine::validate(request.params, skeleton.usable_vocab()));
  const std::uint64_t seed =
      request.params.seed ? *request.params.seed : std::random_device{}() * 0x100000001ull;
  Generation generation(skeleton, engine);
  generation.logprobs_ = request.params.logprobs.has_value();
  for (int i = 0; i < request.params.n; ++i) {
    // The first answer draws with the seed itself, so n does not change it.
    auto id = engine.submit({request.prompt, request.params,
                             i == 0 ? seed : mix64(seed + static_cast<unsigned>(i)), skeleton.eos_ids});
    if (!id) {
      generation.cancel();
      return id.error();
    }
    Answer answer{.stops = text::StopMatcher(request.params.stop)};
    if (skeleton.tokenizer) answer.decoder.emplace(*skeleton.tokenizer, true);
    generation.ids_.push_back(*id);
    generation.answers_.push_back(std::move(answer));
    ++generation.running_;
  }
  return generation;
}

std::optional<Delta> Generation::push(engine::Event event) {
  const auto index = std::ranges::find(ids_, event.request) - ids_.begin();
  if (index == std::ssize(ids_) || answers_[static_cast<std::size_t>(index)].done) return std::nullopt;
  Answer& answer = answers_[static_cast<std::size_t>(index)];
  Delta delta{.index = static_cast<int>(index), .token = event.token->token};
  if (answer.decoder) {
    if (!event.is_eos) delta.text = answer.stops.push(answer.decoder->push(delta.token));
    if (event.finished && !answer.stops.stopped()) {
      delta.text += answer.stops.push(answer.decoder->finish());
      if (!answer.stops.stopped()) delta.text += answer.stops.finish();
    }
  }
  if (logprobs_ && !event.is_eos) delta.logprobs = std::move(event.token);
  if (answer.stops.stopped()) {
    end(delta.index);
    delta.finish_reason = engine::FinishReason::stop;
  } else if (event.finished) {
    answer.done = true;
    --running_;
    delta.finish_reason = event.finished;
  }
  return delta;
}

void Generation::end(int index) {
  Answer& answer = answers_[static_cast<std::size_t>(index)];
  if (answer.done) return;
  engine_->cancel(ids_[static_cast<std::size_t>(index)]);
  answer.done = true;
  --running_;
}

void Generation::cancel() {
  for (int i = 0; i < std::ssize(answers_); ++i) end(i);
}

}  // namespace snug::llm
