#include "quant/format.h"

#include "quant/iq4_nl.h"
#include "quant/iq4_xs.h"
#include "quant/plain.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

namespace snug::quant {
namespace {

// In the order of Format. The ids are those of the GGUF specification.
constexpr FormatInfo kFormats[kFormatCount] = {
    {Format::f32, "f32", 0, 1, 4, decode_f32, encode_f32},
    {Format::f16, "f16", 1, 1, 2, decode_f16, encode_f16},
    {Format::bf16, "bf16", 30, 1, 2, decode_bf16, encode_bf16},
    {Format::q4_0, "q4_0", 2, BlockQ4_0::kElems, sizeof(BlockQ4_0), decode_q4_0, encode_q4_0},
    {Format::q4_1, "q4_1", 3, BlockQ4_1::kElems, sizeof(BlockQ4_1), decode_q4_1, encode_q4_1},
    {Format::q5_0, "q5_0", 6, BlockQ5_0::kElems, sizeof(BlockQ5_0), decode_q5_0, encode_q5_0},
    {Format::q5_1, "q5_1", 7, BlockQ5_1::kElems, sizeof(BlockQ5_1), decode_q5_1, encode_q5_1},
    {Format::q8_0, "q8_0", 8, BlockQ8_0::kElems, sizeof(BlockQ8_0), decode_q8_0, encode_q8_0},
    {Format::q2_k, "q2_k", 10, BlockQ2K::kElems, sizeof(BlockQ2K), decode_q2_k, encode_q2_k},
    {Format::q3_k, "q3_k", 11, BlockQ3K::kElems, sizeof(BlockQ3K), decode_q3_k, encode_q3_k},
    {Format::q4_k, "q4_k", 12, BlockQ4K::kElems, sizeof(BlockQ4K), decode_q4_k, encode_q4_k},
    {Format::q5_k, "q5_k", 13, BlockQ5K::kElems, sizeof(BlockQ5K), decode_q5_k, encode_q5_k},
    {Format::q6_k, "q6_k", 14, BlockQ6K::kElems, sizeof(BlockQ6K), decode_q6_k, encode_q6_k},
    {Format::iq4_nl, "iq4_nl", 20, BlockIQ4NL::kElems, sizeof(BlockIQ4NL), decode_iq4_nl, encode_iq4_nl},
    {Format::iq4_xs, "iq4_xs", 23, BlockIQ4XS::kElems, sizeof(BlockIQ4XS), decode_iq4_xs, encode_iq4_xs},
};

constexpr bool in_order() {
  for (int i = 0; i < kFormatCount; ++i) {
    if (static_cast<int>(kFormats[i].format) != i) return false;
  }
  return true;
}
static_assert(in_order());

}  // namespace

const FormatInfo& info(Format format) {
  return kFormats[static_cast<int>(format)];
}

std::span<const FormatInfo> all_formats() {
  return kFormats;
}

std::optional<Format> format_from_name(std::string_view name) {
  for (const FormatInfo& f : kFormats) {
    if (name == f.name) return f.format;
  }
  return std::nullopt;
}

std::optional<Format> format_from_gguf_type(std::uint32_t type) {
  for (const FormatInfo& f : kFormats) {
    if (type == f.gguf_type) return f.format;
  }
  return std::nullopt;
}

}  // namespace snug::quant
