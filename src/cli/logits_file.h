// Logits streamed to a safetensors file: tensors "logits.0", "logits.1", … of shape (tokens, vocab), float32.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>

#include "base/error.h"

namespace snug::cli {

class LogitsFile {
 public:
  // Writes the header; the values follow in order. failed if the file cannot be written.
  static Result<LogitsFile> create(const std::filesystem::path& path, std::span<const std::int64_t> lengths,
                                   std::int64_t vocab);
  Status append(const float* values, std::int64_t count);
  Status close();

 private:
  Status check() const;
  std::filesystem::path path_;
  std::ofstream out_;
};

}  // namespace snug::cli
