// Fetches a repository from a Hugging Face hub (or one that speaks its protocol): resumable and checksummed.
//
// Protocol: GET /api/models/ID/tree/REVISION?recursive=true lists {type, path, size, oid, lfs: {oid, size}},
// in pages chained by a Link header; GET /ID/resolve/REVISION/PATH gives a file, maybe by redirects, and
// takes ranges. Source: https://huggingface.co/docs/hub/api
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace snug::cli {

struct PullOptions {
  std::string endpoint = "https://huggingface.co";
  std::string repo;               // "org/name"
  std::string revision = "main";  // a branch, tag or commit
  std::string token;              // sent to the endpoint only, never to where it redirects; may be empty
  std::filesystem::path cache_dir;
  // Shell patterns over the whole path ('*' matches '/' too). Empty: the top folder's configuration,
  // tokenizer, template and safetensors files.
  std::vector<std::string> include;

  int max_retries = 5;                     // in a row without progress
  std::chrono::milliseconds backoff{500};  // before the first retry, then doubled each time
  std::chrono::seconds stall_limit{60};    // a connection this long without a byte counts as dropped

  // Called from pull() as bytes arrive: the file's path in the repository, its bytes so far, its size.
  std::function<void(const std::string& file, std::int64_t done, std::int64_t total)> progress;
};

// Where a repository lies in the cache: CACHE/org/name, or CACHE/org/name@REVISION for other revisions than
// main.
std::filesystem::path repo_folder(const std::filesystem::path& cache_dir, std::string_view repo,
                                  std::string_view revision);

// Whether `text` has the form org/name of a hub id.
bool is_repo_id(std::string_view text);

// What a finished pull left: the folder, or the .gguf file where the repository's folder holds one and no
// config.json. nullopt where nothing was pulled. Reads the cache only.
std::optional<std::filesystem::path> find_pulled(const std::filesystem::path& cache_dir,
                                                 std::string_view repo, std::string_view revision);

// Downloads what is missing and returns find_pulled's path. A file is written to PATH.part, compared with the
// size and hash that the hub lists (SHA-256, or git's SHA-1 for small files) and then renamed; .snug.json in
// the folder records what is complete, and such files are not fetched again. An interrupted pull goes on
// where it was. usage: a malformed id, revision or endpoint, or no file selected (the message lists what
// there is). failed: network, 404, 401 and 403, a full disk, an answer that is not the protocol's, another
// pull running. bad_file: content that is not what the hub lists, or a listing with unsafe names.
Result<std::filesystem::path> pull(const PullOptions& options);

}  // namespace snug::cli
