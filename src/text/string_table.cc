#include "text/string_table.h"

#include <bit>
#include <functional>

namespace snug::text {

void StringTable::build_index() {
  blob_.shrink_to_fit();
  ends_.shrink_to_fit();
  slots_.assign(std::bit_ceil(ends_.size() + ends_.size() / 2 + 1), -1);
  const std::size_t mask = slots_.size() - 1;
  for (std::int32_t number = 0; number < size(); ++number) {
    const std::string_view text = at(number);
    if (text.empty()) continue;
    std::size_t slot = std::hash<std::string_view>{}(text)&mask;
    while (slots_[slot] >= 0 && at(slots_[slot]) != text) slot = (slot + 1) & mask;
    if (slots_[slot] < 0) slots_[slot] = number;
  }
}

std::int32_t StringTable::find(std::string_view text) const {
  if (slots_.empty()) return -1;
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = std::hash<std::string_view>{}(text)&mask;
  while (slots_[slot] >= 0 && at(slots_[slot]) != text) slot = (slot + 1) & mask;
  return slots_[slot];
}

}  // namespace snug::text
