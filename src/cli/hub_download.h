// Getting one text or one file from the hub, with retries, resumption and verification.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "cli/hub.h"
#include "cli/hub_files.h"

namespace snug::cli {

struct TextAnswer {
  std::string body;
  std::string link;  // the Link header
};

// A small answer of the hub's API (at most 64 MiB).
Result<TextAnswer> get_text(const PullOptions& options, const std::string& url);

// Bytes of `file` that an earlier try left in FOLDER/PATH.part.
std::int64_t part_bytes(const std::filesystem::path& folder, const HubFile& file);

// Fetches `file` into FOLDER/PATH by way of FOLDER/PATH.part. On success the content is verified; on a
// mismatch the part is deleted and the error names the file; after other errors the part stays, to go on
// from.
Status download(const PullOptions& options, const std::filesystem::path& folder, const HubFile& file);

}  // namespace snug::cli
