#include "residency/resident_weights.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "base/rng.h"
#include "base/thread_pool.h"
#include "core/arena.h"
#include "residency/random_blocks.h"
#include "residency/upload.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14; older kernels refuse it
#endif

namespace snug::residency {

using model::PlacedWeight;
using model::Placement;

// Rows [begin, end) of a weight, row-major, valid until the next call; and what to do once they are used.
class ResidentWeights::Source {
 public:
  virtual ~Source() = default;
  virtual const std::byte* rows(const PlacedWeight& w, std::int64_t begin, std::int64_t end) = 0;
  virtual void used(const PlacedWeight& w, std::int64_t begin, std::int64_t end) = 0;
  virtual std::int64_t rows_at_once(const PlacedWeight& w) const = 0;
  virtual bool mapped() const = 0;
  // A whole weight that stays as it is: mapped (`memory` is null), or written to `memory`.
  virtual const std::byte* in_place(const PlacedWeight& w, std::byte* memory) = 0;
};

namespace {

std::int64_t row_bytes(const PlacedWeight& w) {
  const auto& shape = w.weight.spec.shape;
  return w.weight.tensor.bytes / shape[0];
}

}  // namespace

class ResidentWeights::FileSource final : public Source {
 public:
  explicit FileSource(const formats::WeightIndex& index) : index_(index) {}

  const std::byte* rows(const PlacedWeight& w, std::int64_t begin, std::int64_t end) override {
    const auto& t = w.weight.tensor;
    file(w).will_need(static_cast<std::size_t>(t.offset + begin * row_bytes(w)),
                      static_cast<std::size_t>((end - begin) * row_bytes(w)));
    return index_.data(t) + begin * row_bytes(w);
  }
  // The packed copy replaces these pages: give them back, so that weights count once.
  void used(const PlacedWeight& w, std::int64_t begin, std::int64_t end) override {
    file(w).drop(static_cast<std::size_t>(w.weight.tensor.offset + begin * row_bytes(w)),
                 static_cast<std::size_t>((end - begin) * row_bytes(w)));
  }
  std::int64_t rows_at_once(const PlacedWeight& w) const override {
    // A multiple of 64 rows, so that a slice is whole panels of any kernel.
    return std::max<std::int64_t>(model::kPackSlice / row_bytes(w) / 64, 1) * 64;
  }
  bool mapped() const override { return true; }
  const std::byte* in_place(const PlacedWeight& w, std::byte*) override {
    const std::byte* data = index_.data(w.weight.tensor);
    constexpr std::uintptr_t kPage = 4096;
    const auto begin = reinterpret_cast<std::uintptr_t>(data) / kPage * kPage;
    const auto end =
        reinterpret_cast<std::uintptr_t>(data) + static_cast<std::uintptr_t>(w.weight.tensor.bytes);
    if (::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ) != 0) {
      for (auto p = begin; p < end; p += kPage) touched_ += *reinterpret_cast<const volatile char*>(p);
    }
    return data;
  }

 private:
  const MappedFile& file(const PlacedWeight& w) const {
    return *index_.files[static_cast<std::size_t>(w.weight.tensor.file)];
  }
  const formats::WeightIndex& index_;
  int touched_ = 0;
};

class ResidentWeights::RandomSource final : public Source {
 public:
  RandomSource(std::uint64_t seed, std::byte* staging, const Stream& stream)
      : seed_(seed), staging_(staging), stream_(stream) {}

  const std::byte* rows(const PlacedWeight& w, std::int64_t begin, std::int64_t end) override {
    return fill(w, (end - begin) * row_bytes(w), staging_);
  }
  void used(const PlacedWeight&, std::int64_t, std::int64_t) override {}
  std::int64_t rows_at_once(const PlacedWeight& w) const override { return w.weight.spec.shape[0]; }
  bool mapped() const override { return false; }
  const std::byte* in_place(const PlacedWeight& w, std::byte* memory) override {
    return fill(w, w.weight.tensor.bytes, memory);
  }

 private:
  const std::byte* fill(const PlacedWeight& w, std::int64_t bytes, std::byte* out) {
    // Norms are near one; everything else keeps activations of the usual size at the usual widths.
    const auto& spec = w.weight.spec;
    const bool norm = !spec.is_matrix() && w.weight.tensor.name.ends_with("norm.weight");
    const float scale = norm ? 0.05f : 0.02f;
    fill_random_blocks(w.weight.tensor.format, norm ? 1.0f : 0.0f, scale, mix64(seed_ ^ next_++), bytes, out,
                       stream_);
    return out;
  }

  std::uint64_t seed_;
  std::uint64_t next_ = 0;
  std::byte* staging_;
  Stream stream_;
};

Result<std::unique_ptr<ResidentWeights>> ResidentWeights::load(const model::Config& config,
                                                               const std::vector<PlacedWeight>& weights,
                                                               const formats::WeightIndex& index,
                                                               const Carrier& carrier) {
  FileSource source(index);
  SNUG_ASSIGN(auto loaded, build(config, weights, source, carrier));
  loaded->index_ = index;
  return loaded;
}

Result<std::unique_ptr<ResidentWeights>> ResidentWeights::random(const model::Config& config,
                                                                 const std::vector<PlacedWeight>& weights,
                                                                 std::uint64_t seed, const Carrier& carrier) {
  std::int64_t largest = 4096;
  for (const auto& w : weights) {
    if (w.placement != Placement::in_place) largest = std::max(largest, w.weight.tensor.bytes);
  }
  SNUG_ASSIGN(const Allocation staging, carrier.ledger->allocate("load.source", Device::host, largest));
  RandomSource source(seed, staging.data(), carrier.stream);
  return build(config, weights, source, carrier);
}

ResidentWeights::~ResidentWeights() {
  if (ledger_ != nullptr && mapped_bytes_ > 0) ledger_->count_mapped("weights.mapped", -mapped_bytes_);
}

Result<std::unique_ptr<ResidentWeights>> ResidentWeights::build(const model::Config& config,
                                                                const std::vector<PlacedWeight>& weights,
                                                                Source& source, const Carrier& carrier) {
  Ledger& ledger = *carrier.ledger;
  const Progress& progress = carrier.progress;
  std::unique_ptr<ResidentWeights> self(new ResidentWeights);
  self->ledger_ = &ledger;
  self->layers_.resize(static_cast<std::size_t>(config.layers));

  std::optional<Uploader> uploader;
  if (carrier.gpu != nullptr) {
    SNUG_ASSIGN(uploader, Uploader::create(*carrier.gpu, carrier.stream, ledger));
  }
  std::byte* memory[4] = {};  // by Placement: where the next weight goes
  for (const auto& row : model::weight_rows(weights, source.mapped())) {
    if (row.lifetime == model::Lifetime::load || row.tag == "weights.mapped") continue;
    SNUG_ASSIGN(Allocation block, ledger.allocate(row.tag, row.device, row.bytes));
    const auto kind = row.tag == "weights.vectors"  ? Placement::vector
                      : row.tag == "weights.packed" ? Placement::packed
                      : row.tag == "weights.gpu"    ? Placement::uploaded
                                                    : Placement::in_place;
    memory[static_cast<int>(kind)] = block.data();
    self->blocks_.push_back(std::move(block));
  }

  std::int64_t total = 0, done = 0;
  for (const auto& w : weights) total += w.weight.tensor.bytes;
  for (const auto& w : weights) {
    const auto& spec = w.weight.spec;
    const auto format = w.weight.tensor.format;
    std::byte*& cursor = memory[static_cast<int>(w.placement)];
    if (w.placement == Placement::vector) {
      std::vector<float> values(static_cast<std::size_t>(spec.shape[0]));
      float* out = uploader ? values.data() : reinterpret_cast<float*>(cursor);
      quant::info(format).decode(source.rows(w, 0, spec.shape[0]), out, spec.shape[0]);
      for (std::int64_t i = 0; i < spec.shape[0]; ++i) {
        if (std::isfinite(out[i])) continue;
        return Error{ErrorCode::bad_file,
                     fmt::format("tensor {} holds NaN or infinity", w.weight.tensor.name),
                     "fetch the checkpoint again"};
      }
      if (uploader) uploader->vector(out, spec.shape[0], cursor);
      self->bind_vector(spec, reinterpret_cast<const float*>(cursor));
      cursor += align_up(w.bytes);
    } else if (w.placement == Placement::packed) {
      const std::int64_t step = source.rows_at_once(w);
      for (std::int64_t begin = 0; begin < spec.shape[0]; begin += step) {
        const std::int64_t end = std::min(begin + step, spec.shape[0]);
        const kernels::WeightView slice{format, kernels::Layout::rows, end - begin, spec.shape[1],
                                        source.rows(w, begin, end)};
        const std::int64_t offset = begin == 0 ? 0 : kernels::cpu::packed_bytes(format, begin, spec.shape[1]);
        kernels::cpu::pack_rows(carrier.stream, slice, cursor + offset);
        source.used(w, begin, end);
        if (progress) progress(done + end * row_bytes(w), total);
      }
      self->bind_matrix(spec, {format, kernels::Layout::packed, spec.shape[0], spec.shape[1], cursor});
      cursor += align_up(w.bytes);
    } else if (w.placement == Placement::uploaded) {
      const std::int64_t step = source.rows_at_once(w);
      for (std::int64_t begin = 0; begin < spec.shape[0]; begin += step) {
        const std::int64_t end = std::min(begin + step, spec.shape[0]);
        uploader->rows(w, source.rows(w, begin, end), begin, end, carrier.exact, cursor);
        source.used(w, begin, end);
        if (progress) progress(done + end * row_bytes(w), total);
      }
      const auto target = kernels::cuda::target_of(format, spec.shape[0], spec.shape[1], carrier.exact);
      self->bind_matrix(spec, {target.format, target.layout, spec.shape[0], spec.shape[1], cursor});
      cursor += align_up(w.bytes, 256);
    } else {
      const std::byte* data = source.in_place(w, cursor);
      if (source.mapped()) {
        self->mapped_bytes_ += w.bytes;
        ledger.count_mapped("weights.mapped", w.bytes);
      } else {
        cursor += align_up(w.bytes);
      }
      self->bind_matrix(spec, {format, kernels::Layout::rows, spec.shape[0], spec.shape[1], data});
    }
    done += w.weight.tensor.bytes;
    if (progress) progress(done, total);
  }
  if (carrier.gpu != nullptr) carrier.gpu->synchronize();  // before the staging goes
  if (config.tied) self->outer_.lm_head = self->outer_.embedding;
  return self;
}

void ResidentWeights::bind_vector(const model::WeightSpec& spec, const float* data) {
  using model::Role;
  if (spec.role == Role::final_norm) {
    outer_.final_norm = data;
    return;
  }
  auto& layer = layers_[static_cast<std::size_t>(spec.layer)];
  switch (spec.role) {
    case Role::input_norm:
      layer.input_norm = data;
      break;
    case Role::post_norm:
      layer.post_norm = data;
      break;
    case Role::q_bias:
      layer.q_bias = data;
      break;
    case Role::k_bias:
      layer.k_bias = data;
      break;
    case Role::v_bias:
      layer.v_bias = data;
      break;
    default:
      break;
  }
}

void ResidentWeights::bind_matrix(const model::WeightSpec& spec, const kernels::WeightView& view) {
  using model::Role;
  if (spec.role == Role::embedding) {
    outer_.embedding = view;
    return;
  }
  if (spec.role == Role::lm_head) {
    outer_.lm_head = view;
    return;
  }
  auto& layer = layers_[static_cast<std::size_t>(spec.layer)];
  switch (spec.role) {
    case Role::q:
      layer.q = view;
      break;
    case Role::k:
      layer.k = view;
      break;
    case Role::v:
      layer.v = view;
      break;
    case Role::o:
      layer.o = view;
      break;
    case Role::gate:
      layer.gate = view;
      break;
    case Role::up:
      layer.up = view;
      break;
    case Role::down:
      layer.down = view;
      break;
    default:
      break;
  }
}

}  // namespace snug::residency
