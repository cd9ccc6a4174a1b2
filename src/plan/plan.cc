#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"

namespace snug::plan {
namespace {

using model::Lifetime;

// What the process grows by after planning, measured with 1 to 64 threads: the code of loading and a few
// pages of each thread (0.6 to 0.9 MB and 10 KB); then the code of the forward pass and of sampling, and
// small objects (1.5 MB). A load's peak comes before the latter.
constexpr std::int64_t kLoadGrowth = 3ll << 19;
constexpr std::int64_t kThreadGrowth = 12 << 10;
constexpr std::int64_t kRunGrowth = 5ll << 19;
constexpr std::int64_t kDefaultChunk = 512;
constexpr std::int64_t kSmallestChunk = 32;

std::int64_t blocks_for(std::int64_t tokens) {
  return (tokens + kKvBlockSize - 1) / kKvBlockSize;
}

std::int64_t load_bytes(const std::vector<model::SizeRow>& fixed) {
  return model::total_bytes(fixed, Device::host, Lifetime::run) +
         model::total_bytes(fixed, Device::host, Lifetime::load);
}

// Fills in rows and the total for given limits.
void sum_up(Plan& plan, const model::Config& config, const std::vector<model::SizeRow>& fixed) {
  plan.rows = fixed;
  plan.rows.push_back({"process.running", "code and small objects", kRunGrowth});
  plan.rows.push_back(model::kv_row(config, plan.kv_blocks, plan.kv_block_size, plan.kv_dtype));
  for (auto& row : model::activation_rows(config, plan.limits)) plan.rows.push_back(std::move(row));
  // Loading holds the weights and its source, running the weights and everything else.
  plan.predicted_host =
      std::max(load_bytes(fixed), model::total_bytes(plan.rows, Device::host, Lifetime::run));
}

// The rows' sum by group: of loading, or of running.
std::string describe(const std::vector<model::SizeRow>& rows, bool loading) {
  std::string text;
  for (const char* group : {"process", "weights", "load", "kv", "activations", "workspace"}) {
    std::int64_t bytes = 0;
    for (const auto& row : rows) {
      if (row.tag.starts_with(group) && (loading || row.lifetime == Lifetime::run)) bytes += row.bytes;
    }
    if (bytes > 0) text += fmt::format("{}{} {}", text.empty() ? "" : " + ", group, format_bytes(bytes));
  }
  return text;
}

}  // namespace

Result<Plan> make_plan(const model::Config& config, const std::vector<model::PlacedWeight>& weights,
                       bool mapped, const Budget& budget, const Wishes& wishes, std::int64_t process_bytes) {
  std::vector<model::SizeRow> fixed = {
      {"process", "code, tokenizer, index", process_bytes + kLoadGrowth + kThreadGrowth * wishes.threads}};
  for (auto& row : model::weight_rows(weights, mapped)) fixed.push_back(std::move(row));

  Plan plan;
  plan.kv_block_size = kKvBlockSize;
  plan.kv_dtype = wishes.kv_dtype;
  plan.budget_host = budget.host.value_or(budget.host_available);
  const bool length_is_wished = wishes.max_model_len.has_value();
  plan.max_model_len = wishes.max_model_len.value_or(config.max_positions);
  const auto set_length = [&](std::int64_t tokens) {
    plan.max_model_len = tokens;
    plan.kv_blocks = blocks_for(tokens) * wishes.max_num_seqs;
  };
  set_length(plan.max_model_len);

  const std::int64_t wished_chunk =
      std::clamp<std::int64_t>(wishes.max_num_batched_tokens.value_or(kDefaultChunk), 1,
                               std::max<std::int64_t>(plan.max_model_len * wishes.max_num_seqs, 1));
  plan.limits = {std::max(wished_chunk, wishes.max_num_seqs), wishes.max_num_seqs,
                 std::max(wishes.logit_rows, wishes.max_num_seqs), wishes.threads};
  sum_up(plan, config, fixed);
  // Degrade in this order: a smaller chunk (where the user named none), then a shorter context (likewise).
  const std::int64_t smallest = std::max(kSmallestChunk, wishes.max_num_seqs);
  while (plan.predicted_host > plan.budget_host && !wishes.max_num_batched_tokens &&
         plan.limits.tokens > smallest) {
    plan.limits.tokens = std::max(plan.limits.tokens / 2, smallest);
    sum_up(plan, config, fixed);
  }
  if (plan.predicted_host <= plan.budget_host) return plan;

  const std::int64_t per_block = model::kv_row(config, 1024, kKvBlockSize, wishes.kv_dtype).bytes / 1024;
  const std::int64_t excess = plan.predicted_host - plan.budget_host;
  const std::int64_t fitting_blocks = plan.kv_blocks - (excess + per_block - 1) / per_block - 1;
  // Where loading alone is too much, no context is short enough.
  const bool loads = load_bytes(fixed) <= plan.budget_host;
  const std::int64_t fitting = loads ? fitting_blocks / wishes.max_num_seqs * kKvBlockSize : 0;
  if (!length_is_wished && fitting >= 1024) {
    set_length(std::min(fitting, plan.max_model_len));
    sum_up(plan, config, fixed);
    if (plan.predicted_host <= plan.budget_host) return plan;
  }
  const bool loading = plan.predicted_host > model::total_bytes(plan.rows, Device::host, Lifetime::run);
  const std::string sum = fmt::format("{} = {}, more than the {} of host memory allowed",
                                      describe(loading ? fixed : plan.rows, loading),
                                      format_bytes(plan.predicted_host), format_bytes(plan.budget_host));
  if (fitting >= kKvBlockSize) {
    return Error{ErrorCode::does_not_fit, sum, fmt::format("--max-model-len {} would fit", fitting)};
  }
  // In whole MiB, with room for what the process itself differs by from start to start.
  constexpr std::int64_t kMiB = 1ll << 20;
  return Error{ErrorCode::does_not_fit, sum,
               fmt::format("--host-memory {}MiB would do, or take a checkpoint with fewer bits per weight",
                           (plan.predicted_host + kMiB / 2) / kMiB + 1)};
}

}  // namespace snug::plan
