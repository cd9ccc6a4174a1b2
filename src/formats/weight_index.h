// Every tensor of a checkpoint: its name, format, shape and where its bytes lie in which mapped file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "quant/format.h"

namespace snug::formats {

struct TensorEntry {
  std::string name;  // as in the file
  quant::Format format = quant::Format::f32;
  std::vector<std::int64_t>
      shape;                // row-major, slowest first: a linear weight is (out, in) for every file kind
  int file = 0;             // index into WeightIndex::files
  std::int64_t offset = 0;  // from the start of that file
  std::int64_t bytes = 0;
};

inline constexpr int kMaxTensorDims = 8;

// The bytes that the entry's shape and format need. bad_file "FILE: tensor NAME …" for more than
// kMaxTensorDims dimensions, a dimension below 1, a size that overflows, or rows that are not whole blocks of
// the format.
Result<std::int64_t> checked_bytes(const TensorEntry& entry, std::string_view file);

// Read from headers only; no weight byte is touched. Copies share the mappings.
struct WeightIndex {
  std::vector<std::shared_ptr<MappedFile>> files;
  std::map<std::string, TensorEntry> tensors;
  std::vector<std::string>
      warnings;  // e.g. an index that named a missing tensor and was rebuilt from headers

  const std::byte* data(const TensorEntry& t) const { return files[t.file]->bytes().data() + t.offset; }
  std::int64_t total_bytes() const;
};

}  // namespace snug::formats
