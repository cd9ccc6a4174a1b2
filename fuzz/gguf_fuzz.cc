// parse_gguf, and the config and tokenizer that its metadata describe, on any bytes.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "formats/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto gguf = snug::formats::parse_gguf(bytes, "fuzz");
  if (!gguf.ok()) return 0;
  for (const auto& tensor : gguf->tensors) {
    const bool inside =
        tensor.offset >= 0 && tensor.bytes >= 0 && static_cast<std::size_t>(tensor.offset) <= size &&
        static_cast<std::size_t>(tensor.bytes) <= size - static_cast<std::size_t>(tensor.offset);
    if (!inside) std::abort();
  }
  if (const auto config = snug::formats::config_from_gguf(*gguf); config.ok() && config->head_dim <= 0)
    std::abort();
  (void)snug::formats::read_gguf_tokenizer(*gguf).ok();
  return 0;
}
