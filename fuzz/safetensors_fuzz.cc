// parse_safetensors on any bytes.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto tensors = snug::formats::parse_safetensors(bytes, "fuzz");
  if (!tensors.ok()) return 0;
  for (const auto& tensor : *tensors) {
    const bool inside =
        tensor.offset >= 0 && tensor.bytes >= 0 && static_cast<std::size_t>(tensor.offset) <= size &&
        static_cast<std::size_t>(tensor.bytes) <= size - static_cast<std::size_t>(tensor.offset);
    if (!inside) std::abort();
  }
  return 0;
}
