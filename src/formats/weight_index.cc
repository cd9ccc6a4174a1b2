#include "formats/weight_index.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utf8proc.h>

#include "formats/bad_file.h"

namespace snug::formats {

bool is_valid_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes) return false;
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(name.data());
  auto left = static_cast<utf8proc_ssize_t>(name.size());
  while (left > 0) {
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t used = utf8proc_iterate(at, left, &code);
    if (used <= 0 || code < 0x20 || (code >= 0x7F && code < 0xA0)) return false;
    at += used;
    left -= used;
  }
  return true;
}

Result<std::int64_t> checked_bytes(const TensorEntry& entry, std::string_view file) {
  const auto refuse = [&](std::string_view why) {
    return bad_file(file, fmt::format("tensor {}: {}", entry.name, why), "fetch or convert the file again");
  };
  if (entry.shape.size() > kMaxTensorDims) {
    return refuse(
        fmt::format("shape has {} dimensions, at most {} are supported", entry.shape.size(), kMaxTensorDims));
  }
  const auto shape = fmt::format("shape [{}]", fmt::join(entry.shape, ", "));
  std::int64_t elements = 1;
  for (const std::int64_t dim : entry.shape) {
    if (dim < 1) return refuse(fmt::format("{} must have dimensions of 1 or more", shape));
    if (__builtin_mul_overflow(elements, dim, &elements))
      return refuse(fmt::format("{} is too large", shape));
  }
  const quant::FormatInfo& format = quant::info(entry.format);
  const std::int64_t row = entry.shape.empty() ? 1 : entry.shape.back();
  if (row % format.block_elems != 0) {
    return refuse(fmt::format("{}: rows of {} are not whole blocks of {} {} elements", shape, row,
                              format.block_elems, format.name));
  }
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(elements / format.block_elems, std::int64_t{format.block_bytes}, &bytes)) {
    return refuse(fmt::format("{} is too large", shape));
  }
  return bytes;
}

std::int64_t WeightIndex::total_bytes() const {
  std::int64_t sum = 0;  // bounded: every tensor lies in a mapped file, and none overlap
  for (const auto& [name, tensor] : tensors) sum += tensor.bytes;
  return sum;
}

}  // namespace snug::formats
