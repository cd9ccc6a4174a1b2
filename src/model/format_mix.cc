#include "model/format_mix.h"

#include <fmt/format.h>

namespace snug::model {
namespace {

using quant::Format;

// A quantised row must be whole blocks: where it is not, the next format with blocks of 32 stands in.
Format fit(Format format, std::int64_t cols) {
  if (cols % quant::info(format).block_elems == 0) return format;
  switch (format) {
    case Format::q2_k:
    case Format::q3_k:
    case Format::iq4_xs:
      return fit(Format::iq4_nl, cols);
    case Format::q4_k:
      return fit(Format::q5_0, cols);
    case Format::q5_k:
      return fit(Format::q5_1, cols);
    case Format::q6_k:
      return fit(Format::q8_0, cols);
    default:
      return Format::f16;
  }
}

bool is_quantised(Format format) {
  return quant::info(format).block_elems > 1;
}

// Layers whose value and down projections keep more bits in the "m" mixes: the first and last eighth and
// every third between.
bool keeps_more_bits(std::int64_t layer, std::int64_t layers) {
  const std::int64_t eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

Format format_of(const WeightSpec& spec, Format base, bool mix, const Config& config) {
  if (!spec.is_matrix()) return Format::f32;
  Format format = base;
  const bool is_head = spec.role == Role::lm_head || (spec.role == Role::embedding && config.tied);
  if (is_head && is_quantised(base) && base != Format::q8_0) format = Format::q6_k;
  if (mix && (spec.role == Role::v || spec.role == Role::down) &&
      keeps_more_bits(spec.layer, config.layers)) {
    format = Format::q6_k;
  }
  return fit(format, spec.shape[1]);
}

}  // namespace

Result<std::vector<BoundWeight>> weights_of_type(const Config& config, std::string_view type) {
  const bool mix = type == "q4_k_m" || type == "q5_k_m";
  auto base = quant::format_from_name(mix ? type.substr(0, 4) : type);
  if (!base) {
    std::string names;
    for (const auto& f : quant::all_formats()) names += fmt::format("{}, ", f.name);
    return Error{ErrorCode::usage, fmt::format("'{}' is not a number format", type),
                 fmt::format("known are {}q4_k_m, q5_k_m", names)};
  }
  std::vector<BoundWeight> weights;
  for (auto& spec : weight_specs(config)) {
    formats::TensorEntry tensor;
    tensor.name = spec.hf_name;
    tensor.format = format_of(spec, *base, mix, config);
    tensor.shape = spec.shape;
    tensor.file = -1;
    tensor.bytes = quant::bytes_of(tensor.format, spec.elements());
    weights.push_back({std::move(spec), std::move(tensor)});
  }
  return weights;
}

}  // namespace snug::model
