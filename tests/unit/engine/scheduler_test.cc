// The scheduling policy on its own: no model.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace snug::engine {
namespace {

constexpr int kBlock = 4;
using Step = std::vector<std::pair<RequestId, std::int64_t>>;  // what ran, and how many tokens

class SchedulerTest : public testing::Test {
 protected:
  void start(std::int64_t max_seqs, std::int64_t max_tokens, std::int32_t blocks) {
    pool_.emplace(blocks);
    scheduler_.emplace(SchedulerLimits{max_seqs, max_tokens, kBlock}, *pool_);
  }
  void add(RequestId id, int prompt, int longest = 1000) {
    auto sequence = std::make_unique<Sequence>(kv::SequenceBlocks(&*pool_, kBlock));
    sequence->id = id;
    sequence->tokens.assign(static_cast<std::size_t>(prompt), 1);
    sequence->request.prompt = sequence->tokens;
    sequence->longest = longest;
    scheduler_->add(std::move(sequence));
  }
  // What the engine does when it launches a step; the sequences whose next token the step brings are added to
  // `awaiting`.
  Step launch(const std::vector<Scheduled>& scheduled, std::vector<Sequence*>& awaiting) {
    Step done;
    for (const auto& [sequence, tokens, to_end] : scheduled) {
      EXPECT_GT(tokens, 0);
      EXPECT_GE(sequence->pages.capacity(), sequence->computed + tokens);
      EXPECT_EQ(to_end, sequence->computed + tokens >= sequence->length());
      done.emplace_back(sequence->id, tokens);
      sequence->computed += tokens;
      if (to_end) awaiting.push_back(sequence);
    }
    EXPECT_TRUE(pool_->check().ok());
    return done;
  }
  // Schedules, and does what a forward pass would: a sequence that is computed to its end gets a token.
  Step step() {
    std::vector<Sequence*> awaiting;
    const Step done = launch(scheduler_->next(), awaiting);
    for (Sequence* sequence : awaiting) sequence->tokens.push_back(1);
    return done;
  }
  // A step, and the one after it before the step's tokens are known.
  Step step_ahead() {
    std::vector<Sequence*> awaiting;
    launch(scheduler_->next(), awaiting);
    const Step after = launch(scheduler_->ahead(), awaiting);
    for (Sequence* sequence : awaiting) sequence->tokens.push_back(1);
    return after;
  }
  std::optional<kv::BlockPool> pool_;
  std::optional<Scheduler> scheduler_;
};

TEST_F(SchedulerTest, RunningFirstThenNewcomersByArrival) {
  start(3, 10, 100);
  EXPECT_TRUE(scheduler_->idle());
  add(1, 4);
  add(2, 8);
  add(3, 4);
  EXPECT_EQ(step(), (Step{{1, 4}, {2, 6}}));          // the second prompt is cut by the budget
  EXPECT_EQ(step(), (Step{{1, 1}, {2, 2}, {3, 4}}));  // decoding first, the rest of the prompt, the newcomer
  EXPECT_EQ(step(), (Step{{1, 1}, {2, 1}, {3, 1}}));
  EXPECT_EQ(scheduler_->running(), 3u);
  EXPECT_EQ(scheduler_->waiting(), 0u);
}

TEST_F(SchedulerTest, NoMoreSequencesThanAllowed) {
  start(2, 100, 100);
  for (RequestId id = 1; id <= 3; ++id) add(id, 4);
  EXPECT_EQ(step(), (Step{{1, 4}, {2, 4}}));
  EXPECT_EQ(scheduler_->waiting(), 1u);
  EXPECT_TRUE(scheduler_->remove(1));
  EXPECT_EQ(step(), (Step{{2, 1}, {3, 4}}));
}

TEST_F(SchedulerTest, ANewcomerNeedsPagesForItsWholePrompt) {
  start(4, 8, 6);
  add(1, 12);
  add(2, 16);
  add(3, 4);
  EXPECT_EQ(step(), (Step{{1, 8}}));
  EXPECT_EQ(step(), (Step{{1, 4}}));  // 3 of 6 blocks are left: too few for 16 tokens, and none overtakes
  EXPECT_EQ(step(), (Step{{1, 1}}));
  EXPECT_TRUE(scheduler_->remove(2));
  EXPECT_EQ(step(), (Step{{1, 1}, {3, 4}}));
}

TEST_F(SchedulerTest, TheYoungestGivesItsPagesBackAndComesAgain) {
  start(3, 100, 4);
  add(1, 4);
  add(2, 4);
  EXPECT_EQ(step(), (Step{{1, 4}, {2, 4}}));
  EXPECT_EQ(step(), (Step{{1, 1}, {2, 1}}));  // two blocks each now: all are taken
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(), (Step{{1, 1}, {2, 1}}));
  EXPECT_EQ(step(), (Step{{1, 1}}));  // the ninth token of 1 needs a third block
  EXPECT_EQ(scheduler_->running(), 1u);
  EXPECT_EQ(scheduler_->waiting(), 1u);
  EXPECT_EQ(pool_->free_blocks(), 1);
  EXPECT_TRUE(scheduler_->remove(1));
  EXPECT_EQ(step(), (Step{{2, 9}}));  // all nine tokens are computed again
}

// One that was preempted comes before those that have waited since after it.
TEST_F(SchedulerTest, ThePreemptedComeBeforeNewcomers) {
  start(3, 100, 4);
  add(1, 4);
  add(2, 4);
  for (int i = 0; i < 5; ++i) step();
  add(3, 1);
  EXPECT_EQ(step(), (Step{{1, 1}}));  // 2 gave its pages back; 3 would fit, but 2 is before it
  EXPECT_TRUE(scheduler_->remove(1));
  EXPECT_EQ(step(), (Step{{2, 9}, {3, 1}}));
}

TEST_F(SchedulerTest, TheYoungestMayHaveToGiveUpItself) {
  start(2, 100, 4);
  add(1, 10);  // 3 blocks
  add(2, 4);   // the last one
  EXPECT_EQ(step(), (Step{{1, 10}, {2, 4}}));
  EXPECT_EQ(step(), (Step{{1, 1}}));  // 2 needs another block, and there is none younger to take it from
  EXPECT_EQ(scheduler_->waiting(), 1u);
  EXPECT_EQ(pool_->free_blocks(), 1);
}

TEST_F(SchedulerTest, AheadIsOneTokenOfEach) {
  start(2, 100, 10);
  add(1, 4);
  add(2, 8);
  add(3, 4);  // has no place
  EXPECT_EQ(step_ahead(), (Step{{1, 1}, {2, 1}}));
  EXPECT_EQ(step(), (Step{{1, 1}, {2, 1}}));  // none is left out or comes twice
  EXPECT_TRUE(scheduler_->remove(1));
  EXPECT_EQ(step_ahead(), (Step{{2, 1}, {3, 1}}));
}

TEST_F(SchedulerTest, NotAheadOfAPromptThatGoesOn) {
  start(2, 6, 10);
  add(1, 4);
  add(2, 8);
  EXPECT_EQ(step_ahead(), Step{});  // 4 and 2 tokens, 6 are left of the second prompt
  EXPECT_EQ(step_ahead(), Step{});  // 1 and 5
  EXPECT_EQ(step_ahead(), (Step{{1, 1}, {2, 1}}));
}

TEST_F(SchedulerTest, NotAheadOfASequencesEnd) {
  start(2, 100, 10);
  add(1, 4, 6);
  add(2, 4);
  EXPECT_EQ(step_ahead(), (Step{{1, 1}, {2, 1}}));  // 1 has its fifth token by then, and its sixth after it
  EXPECT_TRUE(scheduler_->remove(1));
  add(3, 4, 5);
  EXPECT_EQ(step_ahead(), Step{});  // 3 ends with the first
}

TEST_F(SchedulerTest, NotAheadOfANewcomer) {
  start(2, 100, 10);
  add(1, 4);
  step();
  std::vector<Sequence*> awaiting;
  launch(scheduler_->next(), awaiting);
  add(2, 4);
  EXPECT_TRUE(scheduler_->ahead().empty());
}

TEST_F(SchedulerTest, NotAheadWithoutPages) {
  start(2, 100, 2);
  add(1, 4);
  add(2, 4);
  EXPECT_EQ(step_ahead(), Step{});
  EXPECT_EQ(scheduler_->running(), 2u);  // nobody gave pages back for a step that may not be needed
}

TEST_F(SchedulerTest, RemoveTakesFromAnywhere) {
  start(1, 100, 10);
  add(1, 4);
  add(2, 4);
  step();
  EXPECT_FALSE(scheduler_->remove(3));
  EXPECT_TRUE(scheduler_->remove(2));
  EXPECT_TRUE(scheduler_->remove(1));
  EXPECT_FALSE(scheduler_->remove(1));
  EXPECT_TRUE(scheduler_->idle());
  EXPECT_EQ(pool_->free_blocks(), 10);
  EXPECT_TRUE(step().empty());
}

}  // namespace
}  // namespace snug::engine
