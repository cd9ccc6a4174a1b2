// parse_hf_config and parse_generation_config on any text.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json.h"
#include "formats/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = snug::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!json.ok()) return 0;
  (void)snug::formats::parse_generation_config(*json, "fuzz").ok();
  const auto config = snug::formats::parse_hf_config(*json, "fuzz");
  if (config.ok() &&
      (config->head_dim <= 0 || config->num_key_value_heads <= 0 || !(config->rope.theta > 0))) {
    std::abort();
  }
  return 0;
}
