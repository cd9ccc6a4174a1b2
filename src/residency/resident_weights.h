// All weights in one memory: the host's, mapped in place or packed at load, or the GPU's. Implements
// model::LayerSource.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/gpu.h"
#include "core/ledger.h"
#include "formats/weight_index.h"
#include "model/layer_source.h"
#include "model/size_table.h"

namespace snug::residency {

using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

// Where weights go, and who carries them.
struct Carrier {
  Ledger* ledger = nullptr;
  Stream stream;       // its pool packs and decodes
  Gpu* gpu = nullptr;  // set where weights are placed on the GPU
  bool exact = false;  // on the GPU: decoded to float32
  Progress progress;
};

class ResidentWeights final : public model::LayerSource {
 public:
  // Maps, packs and checks every weight. `index` is shared and kept open. On error nothing stays allocated.
  // failed "tensor … holds NaN or infinity" for a norm or bias that is not finite.
  static Result<std::unique_ptr<ResidentWeights>> load(const model::Config& config,
                                                       const std::vector<model::PlacedWeight>& weights,
                                                       const formats::WeightIndex& index,
                                                       const Carrier& carrier);

  // Random weights of the given formats, the same for the same seed: no file is needed.
  static Result<std::unique_ptr<ResidentWeights>> random(const model::Config& config,
                                                         const std::vector<model::PlacedWeight>& weights,
                                                         std::uint64_t seed, const Carrier& carrier);

  ~ResidentWeights() override;
  const model::OuterWeights& outer() const override { return outer_; }
  const model::LayerWeights& layer(int index) override { return layers_[static_cast<std::size_t>(index)]; }

 private:
  // Gives the row-major bytes of one weight, valid until the next call.
  class Source;
  class FileSource;
  class RandomSource;

  ResidentWeights() = default;
  static Result<std::unique_ptr<ResidentWeights>> build(const model::Config& config,
                                                        const std::vector<model::PlacedWeight>& weights,
                                                        Source& source, const Carrier& carrier);
  void bind_vector(const model::WeightSpec& spec, const float* data);
  void bind_matrix(const model::WeightSpec& spec, const kernels::WeightView& view);

  formats::WeightIndex index_;  // keeps mappings alive
  Ledger* ledger_ = nullptr;
  std::int64_t mapped_bytes_ = 0;
  std::vector<Allocation> blocks_;
  model::OuterWeights outer_;
  std::vector<model::LayerWeights> layers_;
};

}  // namespace snug::residency
