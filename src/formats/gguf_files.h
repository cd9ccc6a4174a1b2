// A GGUF model of one file, or split over several as llama.cpp's gguf-split names them.
#pragma once

#include <filesystem>

#include "formats/gguf.h"

namespace snug::formats {

struct GgufFiles {
  WeightIndex weights;
  // The first file's metadata; its views point into weights.files[0]. `tensors` holds every file's tensors.
  Gguf gguf;
};

// `path` is the file, or the first of NAME-00001-of-0000N.gguf; the others are found beside it.
// bad_file where parts are missing (naming them), do not belong together, or `path` is not the first.
Result<GgufFiles> open_gguf_files(const std::filesystem::path& path);

}  // namespace snug::formats
