#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <stdexcept>

#include "unit/engine/tiny_engine.h"

namespace snug::engine {
namespace {

std::vector<std::int32_t> alone(const Request& request) {
  TinyEngine engine({});
  const RequestId id = engine.submit(request);
  return engine.run()[id].tokens;
}

// Six requests of mixed lengths, greedy and drawn.
std::vector<Request> mixed_requests() {
  return {request_of(1, 5, 30),       request_of(2, 70, 12),    request_of(3, 1, 40, 0.0),
          request_of(4, 33, 20, 0.7), request_of(5, 16, 25, 0), request_of(6, 90, 8)};
}

// The same prompt and seed give the same tokens, whatever else is in the batch and however prompts are cut.
TEST(Engine, TokensDependOnTheirRequestAlone) {
  const auto requests = mixed_requests();
  std::vector<std::vector<std::int32_t>> expected;
  for (const auto& request : requests) expected.push_back(alone(request));
  std::set<std::vector<std::int32_t>> different(expected.begin(), expected.end());
  ASSERT_EQ(different.size(), expected.size());
  for (const std::int64_t chunk : {4, 13, 32, 128}) {
    for (const int threads : {1, 3}) {
      TinyEngine engine({.chunk = chunk, .threads = threads});
      std::vector<RequestId> ids;
      Answers answers;
      for (const auto& request : requests) {  // they come while others run
        ids.push_back(engine.submit(request));
        engine.step(answers);
      }
      while (!engine->idle()) engine.step(answers);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        EXPECT_EQ(answers[ids[i]].tokens, expected[i]) << "request " << i << " chunk " << chunk;
        EXPECT_EQ(answers[ids[i]].finished, FinishReason::length);
      }
    }
  }
}

TEST(Engine, AnotherSeedGivesOtherTokens) {
  Request request = request_of(1, 5, 30);
  const auto first = alone(request);
  EXPECT_EQ(first.size(), 30u);
  request.seed = 99;
  EXPECT_NE(alone(request), first);
}

// Contract, invariant 2: with too few pages for all, sequences give theirs back and no text changes.
TEST(Engine, PreemptionChangesNoToken) {
  const auto run = [](std::int64_t kv_blocks, int& steps) {
    TinyEngine engine({.max_model_len = 96, .sequences = 3, .kv_blocks = kv_blocks});
    std::vector<RequestId> ids;
    for (const std::uint64_t seed : {1, 2, 3}) ids.push_back(engine.submit(request_of(seed, 12, 70)));
    auto answers = engine.run();
    steps = engine.steps;
    std::vector<std::vector<std::int32_t>> tokens;
    for (const auto id : ids) tokens.push_back(answers[id].tokens);
    return tokens;
  };
  int free_steps = 0, tight_steps = 0;
  const auto expected = run(18, free_steps);
  for (const std::int64_t blocks : {6, 7, 9, 12}) {
    EXPECT_EQ(run(blocks, tight_steps), expected) << blocks << " blocks";
    EXPECT_GT(tight_steps, free_steps) << "nothing was preempted with " << blocks << " blocks";
  }
  for (const auto& tokens : expected) EXPECT_EQ(tokens.size(), 70u);
}

TEST(Engine, CancelGivesPagesBack) {
  TinyEngine engine({.sequences = 2});
  Answers answers;
  const RequestId a = engine.submit(request_of(1, 40, 80)), b = engine.submit(request_of(2, 40, 5)),
                  c = engine.submit(request_of(3, 40, 5));
  for (int i = 0; i < 4; ++i) engine.step(answers);
  EXPECT_TRUE(engine->cancel(a));  // running
  EXPECT_TRUE(engine->cancel(c));  // perhaps still waiting
  EXPECT_FALSE(engine->cancel(a));
  EXPECT_FALSE(engine->cancel(12345));
  while (!engine->idle()) engine.step(answers);
  EXPECT_EQ(answers[b].tokens, alone(request_of(2, 40, 5)));
  EXPECT_FALSE(answers[a].finished.has_value());
  EXPECT_TRUE(engine->check().ok());
  EXPECT_FALSE(engine->cancel(b));  // done already
}

TEST(Engine, SubmitRefusesWhatCannotRun) {
  TinyEngine engine({.max_model_len = 64});
  const auto refused = [&](std::vector<std::int32_t> prompt, const std::string& words) {
    const auto id = engine->submit({.prompt = std::move(prompt)});
    ASSERT_FALSE(id.ok()) << words;
    EXPECT_EQ(id.error().code, ErrorCode::usage);
    EXPECT_NE(id.error().message.find(words), std::string::npos) << id.error().message;
  };
  refused({}, "empty");
  refused({1, 128}, "128");
  refused({-1}, "-1");
  refused(std::vector<std::int32_t>(64, 1), "64");
  refused(std::vector<std::int32_t>(1000, 1), "1000");
  EXPECT_TRUE(engine->idle());
  // One place left is enough for one token.
  const RequestId id =
      engine.submit({.prompt = std::vector<std::int32_t>(63, 1), .params = {.max_tokens = 10}});
  auto answers = engine.run();
  EXPECT_EQ(answers[id].tokens.size(), 1u);
  EXPECT_EQ(answers[id].finished, FinishReason::length);
}

TEST(Engine, LengthEndsAtMaxTokensOrTheContext) {
  TinyEngine engine({.max_model_len = 64});
  const RequestId few = engine.submit(request_of(1, 10, 7)), many = engine.submit(request_of(2, 10, 1000));
  auto answers = engine.run();
  EXPECT_EQ(answers[few].tokens.size(), 7u);
  EXPECT_EQ(answers[few].finished, FinishReason::length);
  EXPECT_EQ(answers[many].tokens.size(), 54u);
  EXPECT_EQ(answers[many].finished, FinishReason::length);
}

TEST(Engine, EosStopsUnlessIgnored) {
  Request request = request_of(3, 6, 30);
  const auto tokens = alone(request);
  // An end token that the drawn text first holds somewhere inside.
  const std::size_t at = 10;
  const auto first = static_cast<std::size_t>(std::ranges::find(tokens, tokens[at]) - tokens.begin());
  request.eos_ids = {1000, tokens[at]};
  TinyEngine engine({});
  const RequestId stops = engine.submit(request);
  request.params.ignore_eos = true;
  const RequestId goes_on = engine.submit(request);
  Answers answers;
  bool was_eos = false;
  while (!engine->idle()) {
    for (auto& event : engine->step()) {
      Answer& answer = answers[event.request];
      answer.tokens.push_back(event.token->token);
      answer.finished = event.finished;
      if (event.request == stops && event.finished) was_eos = event.is_eos;
      EXPECT_FALSE(event.request == goes_on && event.is_eos);
    }
  }
  EXPECT_TRUE(was_eos);
  EXPECT_EQ(answers[stops].finished, FinishReason::stop);
  EXPECT_EQ(
      answers[stops].tokens,
      std::vector<std::int32_t>(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(first) + 1));
  EXPECT_EQ(answers[goes_on].finished, FinishReason::length);
  EXPECT_EQ(answers[goes_on].tokens, tokens);
}

// A source that is like another, but for one row of the embedding: that token's prompts give NaN.
class DamagedRow final : public model::LayerSource {
 public:
  static constexpr std::int32_t kToken = 7;

  explicit DamagedRow(const model::Config& config) : pool_(1) {
    auto weights = residency::ResidentWeights::random(
        config, model::place_weights(*model::weights_of_type(config, "f32")), 11,
        {&ledger_, {Backend::cpu, &pool_}});
    EXPECT_TRUE(weights.ok());
    inner_ = std::move(*weights);
    outer_ = inner_->outer();
    rows_.resize(static_cast<std::size_t>(config.vocab * config.hidden));
    std::vector<std::int32_t> ids(static_cast<std::size_t>(config.vocab));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
    kernels::cpu::embedding(
        {{Backend::cpu, &pool_}, outer_.embedding, ids.data(), config.vocab, rows_.data()});
    rows_[kToken * static_cast<std::size_t>(config.hidden) + 3] = std::numeric_limits<float>::quiet_NaN();
    outer_.embedding = {quant::Format::f32, kernels::Layout::rows, config.vocab, config.hidden,
                        reinterpret_cast<const std::byte*>(rows_.data())};
  }
  const model::OuterWeights& outer() const override { return outer_; }
  const model::LayerWeights& layer(int index) override { return inner_->layer(index); }

 private:
  Ledger ledger_;
  ThreadPool pool_;
  std::unique_ptr<residency::ResidentWeights> inner_;
  std::vector<float> rows_;
  model::OuterWeights outer_;
};

// Case E01 and contract, invariant 5: non-finite logits end their request, its neighbours go on, and its
// pages do no harm to whoever gets them next.
TEST(Engine, NonFiniteLogitsEndTheirRequestAlone) {
  const auto without_it = [](Request request) {
    for (auto& id : request.prompt) id = id == DamagedRow::kToken ? 8 : id;
    request.params.logit_bias = {{DamagedRow::kToken, -100.0f}};
    return request;
  };
  std::vector<Request> good;
  for (const std::uint64_t seed : {1, 2, 3}) good.push_back(without_it(request_of(seed, 20, 30)));
  Request bad = without_it(request_of(4, 20, 30));
  bad.prompt[11] = DamagedRow::kToken;

  TinyEngine engine({}, std::make_unique<DamagedRow>(test::tiny_config()));
  for (int round = 0; round < 3; ++round) {
    std::vector<RequestId> ids = {engine.submit(good[0]), 0, 0};
    const RequestId failing = engine.submit(bad);
    ids[1] = engine.submit(good[1]);
    ids[2] = engine.submit(good[2]);
    auto answers = engine.run();
    EXPECT_EQ(answers[failing].finished, FinishReason::error);
    ASSERT_TRUE(answers[failing].error.has_value());
    EXPECT_EQ(answers[failing].error->code, ErrorCode::failed);
    EXPECT_NE(answers[failing].error->message.find("non-finite"), std::string::npos);
    EXPECT_TRUE(answers[failing].tokens.empty());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(answers[ids[i]].finished, FinishReason::length) << "request " << i << " round " << round;
      EXPECT_EQ(answers[ids[i]].tokens, alone(good[i])) << "request " << i << " round " << round;
    }
  }
}

// Fewer pages than one sequence may need would make it wait for ever.
TEST(Engine, RefusesAPlanWithTooFewPages) {
  Ledger ledger;
  ThreadPool pool(1);
  const auto config = test::tiny_config();
  DamagedRow layers(config);
  plan::Plan plan{.limits = {16, 1, 1, 1}, .max_model_len = 65, .kv_block_size = 16, .kv_blocks = 4};
  const auto create = [&] {
    return Engine::create(model::Qwen2(config, {Backend::cpu, &pool}, kernels::Precision::exact), layers,
                          plan, 128, ledger);
  };
  EXPECT_FALSE(create().ok());
  EXPECT_EQ(ledger.current(Device::host), 0);
  plan.kv_blocks = 5;
  EXPECT_TRUE(create().ok());
}

TEST(Engine, RandomInterleavingsKeepThePagesInOrder) {
  const auto seed = std::random_device{}();
  printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  TinyEngine engine({.max_model_len = 96, .chunk = 16, .sequences = 3, .kv_blocks = 7, .threads = 1});
  Answers answers;
  std::vector<RequestId> live;
  std::map<RequestId, Request> requests;
  std::set<RequestId> cancelled;
  for (int i = 0; i < 200; ++i) {
    const int action = below(10);
    if (action < 3) {
      Request request = request_of(static_cast<std::uint64_t>(i), 1 + below(60), 1 + below(30));
      live.push_back(engine.submit(request));
      requests[live.back()] = std::move(request);
    } else if (action == 3 && !live.empty()) {
      const auto at = static_cast<std::size_t>(below(static_cast<int>(live.size())));
      if (engine->cancel(live[at])) cancelled.insert(live[at]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      engine.step(answers);
    }
    ASSERT_TRUE(engine->check().ok()) << i;
  }
  for (int i = 0; i < 5000 && !engine->idle(); ++i) engine.step(answers);
  ASSERT_TRUE(engine->idle());
  EXPECT_TRUE(engine->check().ok());
  // Every request that was not cancelled has come to its end, with all its tokens.
  for (const auto& [id, request] : requests) {
    if (cancelled.contains(id)) continue;
    EXPECT_EQ(answers[id].finished, FinishReason::length) << id;
    const auto room = static_cast<std::size_t>(96 - request.prompt.size());
    EXPECT_EQ(answers[id].tokens.size(), std::min(static_cast<std::size_t>(request.params.max_tokens), room))
        << id;
  }
}

// A fault of a whole step ends the requests of that step; the engine goes on.
class Faulty final : public model::LayerSource {
 public:
  explicit Faulty(const model::Config& config, const bool* fault) : sound_(config), fault_(fault) {}
  const model::OuterWeights& outer() const override { return sound_.outer(); }
  const model::LayerWeights& layer(int index) override {
    if (*fault_ && index == 1) throw std::runtime_error("the disk is gone");
    return sound_.layer(index);
  }

 private:
  DamagedRow sound_;
  const bool* fault_;
};

TEST(Engine, AFaultOfAStepEndsItsRequests) {
  bool fault = false;
  TinyEngine engine({.sequences = 2}, std::make_unique<Faulty>(test::tiny_config(), &fault));
  Request request{.prompt = {1, 2, 3},
                  .params = {.max_tokens = 5, .logit_bias = {{DamagedRow::kToken, -100.0f}}}};
  const RequestId a = engine.submit(request), b = engine.submit(request), waits = engine.submit(request);
  Answers answers;
  engine.step(answers);
  fault = true;
  engine.step(answers);
  for (const auto id : {a, b}) {
    EXPECT_EQ(answers[id].finished, FinishReason::error);
    ASSERT_TRUE(answers[id].error.has_value());
    EXPECT_NE(answers[id].error->message.find("the disk is gone"), std::string::npos);
  }
  fault = false;
  while (!engine->idle()) engine.step(answers);
  EXPECT_EQ(answers[waits].finished, FinishReason::length);
  EXPECT_EQ(answers[waits].tokens.size(), 5u);
}

// Evaluation gives the logits that decoding sees: greedy tokens are their maxima.
TEST(Engine, EvaluateAgreesWithDecoding) {
  Request request = request_of(9, 20, 40, 0.0);
  auto ids = request.prompt;
  const auto tokens = alone(request);
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  TinyEngine engine({.chunk = 13});
  std::vector<std::int32_t> best;
  std::int64_t next = 0;
  std::set<int> layers;
  const auto status = engine->evaluate(
      ids,
      [&](std::int64_t first, std::int64_t count, const float* logits) -> Status {
        EXPECT_EQ(first, next);
        next += count;
        for (std::int64_t r = 0; r < count; ++r) {
          const float* row = logits + r * 128;
          best.push_back(static_cast<std::int32_t>(std::max_element(row, row + 128) - row));
        }
        return {};
      },
      [&](int layer, std::int64_t, std::int64_t, const float*) { layers.insert(layer); });
  ASSERT_TRUE(status.ok()) << status.error().message;
  ASSERT_EQ(best.size(), ids.size());
  EXPECT_EQ(layers, (std::set<int>{0, 1, 2}));
  for (std::size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(best[19 + i], tokens[i]) << i;
  EXPECT_TRUE(engine->check().ok());

  const auto wrong =
      engine->evaluate(std::vector<std::int32_t>(129, 1), [](auto, auto, auto) { return Status(); });
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, ErrorCode::usage);
  const auto stopped = engine->evaluate(ids, [](auto, auto, auto) -> Status {
    return Error{ErrorCode::failed, "enough", ""};
  });
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().message, "enough");
  EXPECT_TRUE(engine->check().ok());
  engine.submit(request);
  EXPECT_FALSE(engine->evaluate(ids, [](auto, auto, auto) { return Status(); }).ok());
}

}  // namespace
}  // namespace snug::engine
