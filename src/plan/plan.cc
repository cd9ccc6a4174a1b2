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

// Room for what the driver takes by itself once kernels run (modules, cuBLASLt's kernels, graphs), which is
// measured only after loading.
constexpr std::int64_t kGpuModules = 120ll << 20;
constexpr std::int64_t kGpuHostGrowth = 384ll << 20;  // the driver's side on the host

// The largest chunk that is tried on a GPU, where products become efficient.
constexpr std::int64_t kGpuChunk = 4096;

std::int64_t most_at_any_time(const std::vector<model::SizeRow>& fixed,
                              const std::vector<model::SizeRow>& rows, Device device) {
  // Loading holds the weights and its source, running the weights and everything else.
  return std::max(
      model::total_bytes(fixed, device, Lifetime::run) + model::total_bytes(fixed, device, Lifetime::load),
      model::total_bytes(rows, device, Lifetime::run));
}

std::int64_t load_bytes(const std::vector<model::SizeRow>& fixed, Device device) {
  return most_at_any_time(fixed, {}, device);
}

// Fills in rows and the totals for given limits.
void sum_up(Plan& plan, const model::Config& config, const std::vector<model::SizeRow>& fixed) {
  const Device device = plan.limits.device();
  plan.rows = fixed;
  plan.rows.push_back({"process.running", "code and small objects", kRunGrowth});
  plan.rows.push_back(model::kv_row(config, plan.kv_blocks, plan.kv_block_size, plan.kv_dtype, device));
  for (auto& row : model::activation_rows(config, plan.limits)) plan.rows.push_back(std::move(row));
  if (device == Device::gpu0) {
    const auto batch =
        model::device_batch_rows(plan.limits, plan.max_model_len, plan.kv_block_size, config.vocab);
    plan.rows.insert(plan.rows.end(), batch.begin(), batch.end());
  }
  plan.predicted_host = most_at_any_time(fixed, plan.rows, Device::host);
  plan.predicted_gpu = most_at_any_time(fixed, plan.rows, Device::gpu0);
  plan.reserved_gpu = plan.predicted_gpu;
  for (const auto& row : fixed) {
    if (row.tag.starts_with("cuda.")) plan.reserved_gpu -= row.bytes;
  }
}

bool fits(const Plan& plan) {
  return plan.predicted_host <= plan.budget_host &&
         (plan.limits.backend != Backend::cuda || plan.predicted_gpu <= plan.budget_gpu);
}

// The rows' sum by group: of loading, or of running.
std::string describe(const std::vector<model::SizeRow>& rows, Device device, bool loading) {
  std::string text;
  for (const char* group :
       {"process", "server", "cuda", "weights", "load", "kv", "activations", "workspace"}) {
    std::int64_t bytes = 0;
    for (const auto& row : rows) {
      if (row.device == device && row.tag.starts_with(group) && (loading || row.lifetime == Lifetime::run))
        bytes += row.bytes;
    }
    if (bytes > 0) text += fmt::format("{}{} {}", text.empty() ? "" : " + ", group, format_bytes(bytes));
  }
  return text;
}

}  // namespace

Result<Plan> make_plan(const model::Config& config, const std::vector<model::PlacedWeight>& weights,
                       bool mapped, const Budget& budget, const Wishes& wishes, const Held& held) {
  const bool gpu = wishes.backend == Backend::cuda;
  std::vector<model::SizeRow> fixed = {
      {"process", "code, tokenizer, index",
       held.host + kLoadGrowth + kThreadGrowth * wishes.threads + (gpu ? kGpuHostGrowth : 0)}};
  if (held.server > 0) fixed.push_back({"server", "connections, requests and answers", held.server});
  if (gpu) {
    fixed.push_back({"cuda.context", "the driver's", held.gpu_context, Device::gpu0});
    fixed.push_back(
        {"cuda.modules", "kernels and graphs, as the driver holds them", kGpuModules, Device::gpu0});
    fixed.push_back(
        {"workspace.cublaslt", "bytes", std::max<std::int64_t>(held.blas_workspace, 4096), Device::gpu0});
  }
  for (auto& row : model::weight_rows(weights, mapped)) fixed.push_back(std::move(row));

  Plan plan;
  plan.kv_block_size = kKvBlockSize;
  plan.kv_dtype = wishes.kv_dtype;
  plan.budget_host = budget.host.value_or(budget.host_available);
  plan.budget_gpu = gpu ? budget.gpu.value_or(budget.gpu_available) : 0;
  const bool length_is_wished = wishes.max_model_len.has_value();
  plan.max_model_len = wishes.max_model_len.value_or(config.max_positions);
  const auto set_length = [&](std::int64_t tokens) {
    plan.max_model_len = tokens;
    plan.kv_blocks = blocks_for(tokens) * wishes.max_num_seqs;
  };
  set_length(plan.max_model_len);

  const std::int64_t wished_chunk =
      std::clamp<std::int64_t>(wishes.max_num_batched_tokens.value_or(gpu ? kGpuChunk : kDefaultChunk), 1,
                               std::max<std::int64_t>(plan.max_model_len * wishes.max_num_seqs, 1));
  plan.limits = {std::max(wished_chunk, wishes.max_num_seqs),
                 wishes.max_num_seqs,
                 std::max(wishes.logit_rows, wishes.max_num_seqs),
                 wishes.threads,
                 wishes.backend,
                 wishes.activations};
  sum_up(plan, config, fixed);
  // Degrade in this order: a smaller chunk (where the user named none), then a shorter context (likewise).
  const std::int64_t smallest = std::max(kSmallestChunk, wishes.max_num_seqs);
  while (!fits(plan) && !wishes.max_num_batched_tokens && plan.limits.tokens > smallest) {
    plan.limits.tokens = std::max(plan.limits.tokens / 2, smallest);
    sum_up(plan, config, fixed);
  }
  if (fits(plan)) return plan;

  // What is too small: the GPU's memory, where one is used, or the host's.
  const bool on_gpu = gpu && plan.predicted_gpu > plan.budget_gpu;
  const Device device = on_gpu ? Device::gpu0 : Device::host;
  const std::int64_t predicted = on_gpu ? plan.predicted_gpu : plan.predicted_host;
  const std::int64_t allowed = on_gpu ? plan.budget_gpu : plan.budget_host;
  const std::int64_t per_block = model::kv_row(config, 1024, kKvBlockSize, wishes.kv_dtype).bytes / 1024;
  const std::int64_t excess = predicted - allowed;
  const std::int64_t fitting_blocks = plan.kv_blocks - (excess + per_block - 1) / per_block - 1;
  // Where loading alone is too much, or the KV cache lies elsewhere, no context is short enough.
  const bool loads = load_bytes(fixed, device) <= allowed && device == plan.limits.device();
  const std::int64_t fitting = loads ? fitting_blocks / wishes.max_num_seqs * kKvBlockSize : 0;
  if (!length_is_wished && fitting >= 1024) {
    set_length(std::min(fitting, plan.max_model_len));
    sum_up(plan, config, fixed);
    if (fits(plan)) return plan;
  }
  const bool loading = predicted > model::total_bytes(plan.rows, device, Lifetime::run);
  const std::string sum =
      fmt::format("{} = {}, more than the {} of {} memory allowed",
                  describe(loading ? fixed : plan.rows, device, loading), format_bytes(predicted),
                  format_bytes(allowed), on_gpu ? "GPU" : "host");
  if (fitting >= kKvBlockSize) {
    return Error{ErrorCode::does_not_fit, sum, fmt::format("--max-model-len {} would fit", fitting)};
  }
  // In whole MiB, with room for what the process itself differs by from start to start.
  constexpr std::int64_t kMiB = 1ll << 20;
  return Error{ErrorCode::does_not_fit, sum,
               fmt::format("--{}-memory {}MiB would do, or take a checkpoint with fewer bits per weight",
                           on_gpu ? "gpu" : "host", (predicted + kMiB / 2) / kMiB + 1)};
}

}  // namespace snug::plan
