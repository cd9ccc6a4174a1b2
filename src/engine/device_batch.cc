#include "engine/device_batch.h"

#include <algorithm>
#include <utility>

#include "kernels/sample.h"

namespace snug::engine {

Result<DeviceBatch> DeviceBatch::create(Gpu& gpu, const model::ForwardLimits& limits,
                                        std::int64_t max_model_len, int block_size, std::int64_t vocab,
                                        Ledger& ledger) {
  DeviceBatch b;
  b.gpu_ = &gpu;
  b.max_pages_ = (max_model_len + block_size - 1) / block_size;
  Allocation* const blocks[] = {&b.device_,       &b.pinned_, &b.sampling_,    &b.sampled_,
                                &b.sampled_host_, &b.likely_, &b.likely_host_, &b.logits_};
  std::size_t next = 0;
  for (const auto& row : model::device_batch_rows(limits, max_model_len, block_size, vocab)) {
    SNUG_ASSIGN(*blocks[next++], ledger.allocate(row.tag, row.device, row.bytes));
  }
  for (Place& place : b.places_) place = {gpu.make_event(), gpu.make_event()};
  return b;
}

const model::DeviceBatch& DeviceBatch::upload(const model::Batch& batch, int block_size, Ids ids) {
  const auto tokens = batch.ids.size(), sequences = batch.sequences.size();
  // Always the same for a number of rows and sequences: a captured step finds its arrays where they were.
  const std::int64_t stride = max_pages_;
  place_ = 1 - place_;
  gpu_->wait(places_[place_].uploaded);  // out of this memory, two batches ago
  auto* const host = reinterpret_cast<std::int32_t*>(pinned_.data() + place_ * (pinned_.bytes() / 2));
  auto* const device = reinterpret_cast<std::int32_t*>(device_.data());
  std::size_t used = 0;
  const auto take = [&](std::size_t count) {
    used += count;
    return std::pair{host + (used - count), device + (used - count)};
  };
  const auto put = [&](std::span<const std::int32_t> values) {
    const auto [to, at] = take(values.size());
    std::copy(values.begin(), values.end(), to);
    return at;
  };
  batch_.ids = put(batch.ids);
  batch_.positions = put(batch.positions);
  batch_.logit_rows = put(batch.logit_rows);
  const auto [row_sequence, row_sequence_at] = take(tokens);
  const auto [q_begin, q_begin_at] = take(sequences);
  const auto [q_len, q_len_at] = take(sequences);
  const auto [kv_len, kv_len_at] = take(sequences);
  const auto [tables, tables_at] = take(sequences * static_cast<std::size_t>(stride));
  std::fill(row_sequence, row_sequence + tokens, -1);
  for (std::size_t i = 0; i < sequences; ++i) {
    const kv::SequenceView& s = batch.sequences[i];
    q_begin[i] = s.q_begin;
    q_len[i] = s.q_len;
    kv_len[i] = s.kv_len;
    std::fill(row_sequence + s.q_begin, row_sequence + s.q_begin + s.q_len, static_cast<std::int32_t>(i));
    std::int32_t* table = tables + i * static_cast<std::size_t>(stride);
    const std::int64_t pages = (s.kv_len + block_size - 1) / block_size;
    std::copy(s.page_table, s.page_table + pages, table);
    std::fill(table + pages, table + stride, 0);
  }
  batch_.sequences = {.page_tables = tables_at,
                      .page_stride = stride,
                      .q_begin = q_begin_at,
                      .q_len = q_len_at,
                      .kv_len = kv_len_at,
                      .row_sequence = row_sequence_at};
  const std::size_t first = ids == Ids::chosen ? tokens : 0;
  gpu_->upload(device + first, host + first, static_cast<std::int64_t>(used - first) * 4);
  gpu_->record(places_[place_].uploaded);
  return batch_;
}

void DeviceBatch::choose_greedy(const Stream& stream, const model::Workspace& workspace, std::int64_t rows,
                                std::int64_t vocab, int usable_vocab) {
  auto* const tokens = reinterpret_cast<std::int32_t*>(sampled_.data());
  auto* const logprobs = reinterpret_cast<float*>(tokens + rows);
  kernels::cuda::sample({.stream = stream,
                         .logits = workspace.logits.f32(),
                         .rows = rows,
                         .vocab = vocab,
                         .usable_vocab = usable_vocab,
                         .tokens = tokens,
                         .ids = reinterpret_cast<std::int32_t*>(device_.data()),
                         .logprobs = logprobs,
                         .workspace = sampling_.data(),
                         .workspace_bytes = sampling_.bytes()});
}

std::int32_t* DeviceBatch::chosen_on_host(int place) const {
  return reinterpret_cast<std::int32_t*>(sampled_host_.data() + place * (sampled_host_.bytes() / 2));
}

int DeviceBatch::bring_greedy(std::int64_t rows) {
  gpu_->download(chosen_on_host(place_), sampled_.data(), rows * 8);
  gpu_->record(places_[place_].brought);
  return place_;
}

std::vector<TokenLogprob> DeviceBatch::greedy(int place, std::int64_t rows) {
  gpu_->wait(places_[place].brought);
  const std::int32_t* host_tokens = chosen_on_host(place);
  const auto* host_logprobs = reinterpret_cast<const float*>(host_tokens + rows);
  std::vector<TokenLogprob> result;
  for (std::int64_t i = 0; i < rows; ++i) result.push_back({host_tokens[i], host_logprobs[i]});
  return result;
}

void DeviceBatch::find_likely(const Stream& stream, const model::Workspace& workspace, std::int64_t rows,
                              std::int64_t vocab, int usable_vocab) {
  kernels::cuda::likely({.stream = stream,
                         .logits = workspace.logits.f32(),
                         .rows = rows,
                         .vocab = vocab,
                         .usable_vocab = usable_vocab,
                         .likely = reinterpret_cast<kernels::LikelyTokens*>(likely_.data()),
                         .workspace = sampling_.data(),
                         .workspace_bytes = sampling_.bytes()});
  gpu_->download(likely_host_.data(), likely_.data(),
                 rows * static_cast<std::int64_t>(sizeof(kernels::LikelyTokens)));
}

std::span<const kernels::LikelyTokens> DeviceBatch::likely(std::int64_t rows) const {
  return {reinterpret_cast<const kernels::LikelyTokens*>(likely_host_.data()),
          static_cast<std::size_t>(rows)};
}

float* DeviceBatch::logits(const model::Workspace& workspace, std::int64_t count) {
  gpu_->download(logits_.data(), workspace.logits.data, count * 4);
  gpu_->synchronize();
  return reinterpret_cast<float*>(logits_.data());
}

}  // namespace snug::engine
