#include "base/bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

namespace snug {

Result<std::int64_t> parse_bytes(std::string_view text) {
  const Error bad{ErrorCode::usage, fmt::format("'{}' is not a size", text),
                  "write 12GiB, 900MB or a number of bytes"};
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || !std::isfinite(value) || value < 0) return bad;
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size() : unit.find_first_not_of(' '));
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char c) { return std::tolower(c); });
  double scale = 1;
  if (!unit.empty() && unit != "b") {
    const auto power = std::string_view("kmgt").find(unit[0]);
    const std::string_view rest = std::string_view(unit).substr(1);
    if (power == std::string_view::npos || (rest != "b" && rest != "ib")) return bad;
    scale = std::pow(rest == "ib" ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  }
  if (value * scale > 9e18) return bad;
  return static_cast<std::int64_t>(value * scale);
}

std::string format_bytes(std::int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (std::abs(value) >= 1024 && unit < 4) value /= 1024, ++unit;
  if (unit == 0) return fmt::format("{} B", bytes);
  const int decimals = std::abs(value) < 10 ? 2 : std::abs(value) < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

}  // namespace snug
