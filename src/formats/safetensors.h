// safetensors: an 8-byte little-endian header size, a JSON header, then the tensors' bytes.
// Source: https://github.com/huggingface/safetensors (README, "Format").
#pragma once

#include <filesystem>

#include "formats/weight_index.h"

namespace snug::formats {

// Parses one file's header into entries with file index 0 and absolute offsets. `bytes` is the whole file
// (only the header is read). bad_file for: a header larger than the file or 100 MB, broken JSON, unknown
// dtype, offsets that overlap, leave holes, run past the end, or do not equal shape × dtype.
Result<std::vector<TensorEntry>> parse_safetensors(std::span<const std::byte> bytes, std::string_view name);

// A folder with model.safetensors, or model.safetensors.index.json and its shards (names come only from the
// index). A stale index (a tensor it maps elsewhere than the headers say) is rebuilt from the headers with a
// warning; a shard or tensor that is missing is bad_file.
Result<WeightIndex> open_safetensors_folder(const std::filesystem::path& folder);

}  // namespace snug::formats
