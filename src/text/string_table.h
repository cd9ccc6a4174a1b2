// Strings by number in one blob, and numbers by string through an open-addressing hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace snug::text {

class StringTable {
 public:
  void reserve(std::size_t count) { ends_.reserve(count); }
  void add(std::string_view text) {
    blob_.append(text);
    close();
  }
  // For writing in place: append to blob(), then close() makes what was added the next string.
  std::string& blob() { return blob_; }
  void close() { ends_.push_back(static_cast<std::uint32_t>(blob_.size())); }

  std::int32_t size() const { return static_cast<std::int32_t>(ends_.size()); }
  std::string_view at(std::int32_t number) const {
    const auto n = static_cast<std::size_t>(number);
    const std::uint32_t begin = n == 0 ? 0 : ends_[n - 1];
    return std::string_view(blob_).substr(begin, ends_[n] - begin);
  }

  // After the last add. Empty strings are not found; of equal strings the first is.
  void build_index();
  std::int32_t find(std::string_view text) const;  // -1 if absent

 private:
  std::string blob_;
  std::vector<std::uint32_t> ends_;
  std::vector<std::int32_t> slots_;  // a power of two of them; -1: free
};

}  // namespace snug::text
