// An engine over a tiny random model, in exact arithmetic, and what tests do with it.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/thread_pool.h"
#include "engine/engine.h"
#include "model/format_mix.h"
#include "residency/resident_weights.h"
#include "support/tiny_model.h"

namespace snug::engine {

// The tokens of each request and why it ended, by id.
struct Answer {
  std::vector<std::int32_t> tokens;
  std::optional<FinishReason> finished;
  std::optional<Error> error;
};
using Answers = std::map<RequestId, Answer>;

class TinyEngine {
 public:
  struct Options {
    std::int64_t max_model_len = 128, chunk = 32, sequences = 4;
    std::int64_t kv_blocks = 0;  // 0: enough for all sequences
    int threads = 2;
  };
  static constexpr int kBlock = 16;

  explicit TinyEngine(const Options& options) : pool_(options.threads) {
    const Stream stream{Backend::cpu, &pool_};
    auto weights = residency::ResidentWeights::random(
        config_, model::place_weights(*model::weights_of_type(config_, "f32")), 11, {&ledger_, stream});
    EXPECT_TRUE(weights.ok());
    weights_ = std::move(*weights);
    layers_ = weights_.get();
    start(options, *layers_);
  }
  // Other weights of the same geometry, for instance damaged ones.
  TinyEngine(const Options& options, std::unique_ptr<model::LayerSource> layers)
      : pool_(options.threads), owned_(std::move(layers)) {
    start(options, *owned_);
  }

  Engine& operator*() { return *engine_; }
  Engine* operator->() { return engine_.get(); }
  const model::Config& config() const { return config_; }

  RequestId submit(Request request) {
    auto id = engine_->submit(std::move(request));
    EXPECT_TRUE(id.ok()) << id.error().to_string();
    return id.ok() ? *id : 0;
  }
  // One step into `answers`, with what holds of every event.
  void step(Answers& answers) {
    for (auto& event : engine_->step()) {
      Answer& answer = answers[event.request];
      EXPECT_FALSE(answer.finished.has_value()) << "an event after the last one";
      EXPECT_NE(event.token.has_value(), event.error.has_value());
      if (event.token) answer.tokens.push_back(event.token->token);
      answer.finished = event.finished;
      answer.error = event.error;
    }
    ++steps;
    const auto status = engine_->check();
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
  Answers run() {
    Answers answers;
    for (int i = 0; i < 5000 && !engine_->idle(); ++i) step(answers);
    EXPECT_TRUE(engine_->idle());
    for (const auto& [id, answer] : answers) EXPECT_TRUE(answer.finished.has_value()) << id;
    return answers;
  }

  int steps = 0;

 private:
  void start(const Options& options, model::LayerSource& layers) {
    plan::Plan plan;
    plan.limits = {options.chunk, options.sequences, options.sequences, options.threads};
    plan.max_model_len = options.max_model_len;
    plan.kv_block_size = kBlock;
    plan.kv_blocks = options.kv_blocks > 0
                         ? options.kv_blocks
                         : kv::blocks_for(options.max_model_len, kBlock) * options.sequences;
    plan.kv_dtype = DType::f32;
    auto engine = Engine::create(model::Qwen2(config_, {Backend::cpu, &pool_}, kernels::Precision::exact),
                                 layers, plan, static_cast<int>(config_.vocab), ledger_);
    EXPECT_TRUE(engine.ok());
    engine_ = std::move(*engine);
    ledger_.freeze();
  }

  model::Config config_ = test::tiny_config();
  Ledger ledger_;
  ThreadPool pool_;
  std::unique_ptr<model::LayerSource> owned_;
  std::unique_ptr<residency::ResidentWeights> weights_;
  model::LayerSource* layers_ = nullptr;
  std::unique_ptr<Engine> engine_;
};

// A prompt of `length` random ids.
inline Request request_of(std::uint64_t seed, int length, int max_tokens, double temperature = 1.0) {
  Request request;
  for (int i = 0; i < length; ++i) {
    request.prompt.push_back(
        static_cast<std::int32_t>(random_bits(seed, 5, static_cast<std::uint64_t>(i)) % 128));
  }
  request.params.max_tokens = max_tokens;
  request.params.temperature = temperature;
  request.seed = seed;
  return request;
}

}  // namespace snug::engine
