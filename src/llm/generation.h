// One request on its way from tokens to text: its answers in the engine, and what each token adds to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "grammar/grammar.h"
#include "llm/skeleton.h"
#include "text/stream_decoder.h"

namespace snug::llm {

struct GenerateRequest {
  std::vector<std::int32_t> prompt;
  engine::SamplingParams params;  // params.n answers are made
  grammar::GrammarPtr grammar;    // what each answer may look like; null: anything
};

// What one token added to one answer.
struct Delta {
  int index = 0;            // of the answer
  std::int32_t token = -1;  // an eos that ended it included
  std::string text;         // without special tokens; what may be part of a stop string is held back
  std::optional<engine::Sampled> logprobs;            // where asked; not of an eos
  std::optional<engine::FinishReason> finish_reason;  // set with the answer's last token
};

// Used from the engine's thread. Engine and skeleton must outlive it; cancel() before it goes if it is not
// done.
class Generation {
 public:
  // usage error for values or a prompt that do not suit the model; then nothing is left in the engine.
  static Result<Generation> submit(const GenerateRequest& request, const Skeleton& skeleton,
                                   engine::Engine& engine);

  // The engine's names of its answers, by index.
  const std::vector<engine::RequestId>& ids() const { return ids_; }
  // `event` is one of this request's, without an error. Nothing if its answer has ended.
  std::optional<Delta> push(engine::Event event);
  // The reader wants no more of an answer ("stop").
  void end(int index);
  void cancel();
  bool done() const { return running_ == 0; }

 private:
  Generation(const Skeleton& skeleton, engine::Engine& engine) : skeleton_(&skeleton), engine_(&engine) {}
  struct Answer {
    std::optional<text::StreamDecoder> decoder;
    text::StopMatcher stops;
    bool done = false;
  };

  const Skeleton* skeleton_;
  engine::Engine* engine_;
  std::vector<engine::RequestId> ids_;
  std::vector<Answer> answers_;
  bool logprobs_ = false;
  int running_ = 0;
};

}  // namespace snug::llm
