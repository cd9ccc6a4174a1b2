#include "cli/hub.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/json.h"
#include "cli/hub_download.h"
#include "cli/hub_files.h"
#include "cli/hub_http.h"

namespace snug::cli {
namespace {

constexpr int kMaxPages = 200;  // of 1000 files on the public hub
constexpr std::size_t kMaxFiles = 200'000;
constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 50;

// What a model needs, in the top folder only: others hold copies in other formats (onnx/, original/).
constexpr std::array kDefaultPatterns = {"*.json",  "*.safetensors", "*.txt",
                                         "*.jinja", "tokenizer*",    "*.tiktoken"};

bool matches(const std::string& pattern, const std::string& path) {
  return ::fnmatch(pattern.c_str(), path.c_str(), FNM_NOESCAPE) == 0;
}

bool is_selected(const PullOptions& options, const std::string& path) {
  if (!options.include.empty()) {
    return std::any_of(options.include.begin(), options.include.end(),
                       [&](const std::string& pattern) { return matches(pattern, path); });
  }
  return path.find('/') == std::string::npos &&
         std::any_of(kDefaultPatterns.begin(), kDefaultPatterns.end(),
                     [&](const char* pattern) { return matches(pattern, path); });
}

Error not_the_protocol(const std::string& url, std::string_view what) {
  return {ErrorCode::failed, fmt::format("{}: {}", url, what), "check that the endpoint is a model hub"};
}

// The address in `Link: <URL>; rel="next"`, empty where there is none.
std::string next_page(const std::string& link) {
  std::size_t at = 0;
  while ((at = link.find('<', at)) != std::string::npos) {
    const std::size_t end = link.find('>', at);
    if (end == std::string::npos) return "";
    const std::size_t stop = std::min(link.find('<', end), link.size());
    const std::string_view parameters = std::string_view(link).substr(end, stop - end);
    if (parameters.find("rel=\"next\"") != std::string_view::npos ||
        parameters.find("rel=next") != std::string_view::npos) {
      return link.substr(at + 1, end - at - 1);
    }
    at = end;
  }
  return "";
}

// One entry of the listing; nullopt for folders.
Result<std::optional<HubFile>> parse_entry(const Json& entry, const std::string& url) {
  SNUG_ASSIGN(const auto type, optional_string(entry, "type", url));
  if (type && *type != "file") return std::optional<HubFile>{};
  SNUG_ASSIGN(const auto path, optional_string(entry, "path", url));
  SNUG_ASSIGN(auto size, optional_int(entry, "size", url, 0, kMaxFileBytes));
  SNUG_ASSIGN(auto hash, optional_string(entry, "oid", url));
  if (entry.is_object() && entry.contains("lfs") && entry["lfs"].is_object()) {
    SNUG_ASSIGN(hash, optional_string(entry["lfs"], "oid", url));
    SNUG_ASSIGN(const auto lfs_size, optional_int(entry["lfs"], "size", url, 0, kMaxFileBytes));
    if (lfs_size) size = lfs_size;
  }
  if (!path || !size || !hash || !is_hash(*hash)) {
    return not_the_protocol(url, fmt::format("an entry of the listing ({}) lacks its path, size or hash",
                                             path.value_or("without a path")));
  }
  if (!is_safe_path(*path)) {
    return Error{ErrorCode::bad_file,
                 fmt::format("{}: the listing holds the unsafe file name \"{}\"", url, *path),
                 "do not use this repository"};
  }
  return std::optional(HubFile{*path, *size, *hash});
}

Result<std::vector<HubFile>> list_files(const PullOptions& options) {
  std::string url = fmt::format("{}/api/models/{}/tree/{}?recursive=true", options.endpoint, options.repo,
                                url_encode(options.revision, false));
  std::vector<HubFile> files;
  for (int page = 0; page < kMaxPages && !url.empty(); ++page) {
    SNUG_ASSIGN(const auto answer, get_text(options, url));
    auto json = parse_json(answer.body, url, ErrorCode::failed);
    if (!json.ok()) return not_the_protocol(url, "the answer is not JSON");
    if (!json->is_array()) return not_the_protocol(url, "the answer is not a list of files");
    for (const Json& entry : *json) {
      auto file = parse_entry(entry, url);
      if (!file.ok()) {
        Error error = file.error();
        if (error.remedy.starts_with("correct ")) error = not_the_protocol(url, error.message);
        return error;
      }
      if (*file) files.push_back(std::move(**file));
      if (files.size() > kMaxFiles) return not_the_protocol(url, "the listing does not end");
    }
    const std::string next = next_page(answer.link);
    url = next.empty() ? "" : resolve_url(url, next);
  }
  if (!url.empty()) return not_the_protocol(url, "the listing does not end");
  return files;
}

Result<std::vector<HubFile>> select_files(const PullOptions& options, const std::vector<HubFile>& all) {
  std::vector<HubFile> selected;
  std::vector<std::string> ggufs;
  bool has_weights = false;
  std::set<std::string> seen;
  for (const HubFile& file : all) {
    if (file.path.ends_with(".gguf")) ggufs.push_back(file.path);
    if (!is_selected(options, file.path) || !seen.insert(file.path).second) continue;
    has_weights = has_weights || file.path.ends_with(".safetensors");
    selected.push_back(file);
  }
  if (!selected.empty() && (!options.include.empty() || has_weights || ggufs.empty())) return selected;
  std::string names;
  const std::size_t shown = std::min<std::size_t>(ggufs.size(), 12);
  for (std::size_t i = 0; i < shown; ++i) names += (i == 0 ? "" : ", ") + ggufs[i];
  if (shown < ggufs.size()) names += fmt::format(" and {} more", ggufs.size() - shown);
  if (!options.include.empty()) {
    return Error{ErrorCode::usage,
                 fmt::format("{}: no file of {} matches --include{}", options.repo, all.size(),
                             names.empty() ? "" : "; its GGUF files are " + names),
                 "correct the pattern, e.g. --include '*q4_k_m*.gguf'"};
  }
  if (!ggufs.empty()) {
    return Error{ErrorCode::usage, fmt::format("{}: holds GGUF files: {}", options.repo, names),
                 "choose with --include, e.g. --include '" + ggufs[0] + "'"};
  }
  return Error{ErrorCode::usage,
               fmt::format("{}: holds no model files among its {}", options.repo, all.size()),
               "check the id, or name the files with --include"};
}

Status check_options(PullOptions& options) {
  if (!is_repo_id(options.repo)) {
    return Error{ErrorCode::usage, fmt::format("\"{}\" is not a hub id", options.repo),
                 "write it as org/name, e.g. Qwen/Qwen2.5-0.5B-Instruct"};
  }
  if (!is_safe_path(options.revision)) {
    return Error{ErrorCode::usage, fmt::format("\"{}\" is not a revision", options.revision),
                 "give a branch, a tag or a commit"};
  }
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  if (!(options.endpoint.starts_with("http://") || options.endpoint.starts_with("https://")) ||
      resolve_url(options.endpoint, "/").empty()) {
    return Error{ErrorCode::usage, fmt::format("the endpoint \"{}\" is not an address", options.endpoint),
                 "give one like https://huggingface.co"};
  }
  if (options.token.find_first_of("\r\n") != std::string::npos) {
    return Error{ErrorCode::usage, "the token holds a line break", "pass the token alone"};
  }
  return {};
}

bool is_complete(const std::filesystem::path& path, const HubFile& file, const Manifest& manifest) {
  std::error_code code;
  const auto size = std::filesystem::file_size(path, code);
  if (code || size != static_cast<std::uintmax_t>(file.size)) return false;
  const auto entry = manifest.files.find(file.path);
  if (entry != manifest.files.end() && entry->second.size == file.size && entry->second.hash == file.hash)
    return true;
  const auto hash = hash_of(path, file);  // e.g. stopped between the rename and the manifest
  return hash.ok() && hash.value() == file.hash;
}

Status check_free_space(const std::filesystem::path& folder, std::int64_t needed) {
  std::error_code code;
  const auto space = std::filesystem::space(folder, code);
  if (code || space.available >= static_cast<std::uintmax_t>(needed)) return {};
  return Error{ErrorCode::failed,
               fmt::format("{}: {} are still to come and the disk has {} free", folder.string(),
                           format_bytes(needed), format_bytes(static_cast<std::int64_t>(space.available))),
               "free some space, or choose another cache folder"};
}

}  // namespace

bool is_repo_id(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return false;
  for (const std::string_view part : {text.substr(0, slash), text.substr(slash + 1)}) {
    if (part.empty() || part.size() > 96 || part.front() == '.' || part.front() == '-') return false;
    const bool plain = std::all_of(part.begin(), part.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
             c == '_' || c == '.';
    });
    if (!plain) return false;
  }
  return true;
}

std::filesystem::path repo_folder(const std::filesystem::path& cache_dir, std::string_view repo,
                                  std::string_view revision) {
  std::string name(repo);
  if (revision != "main")
    name += fmt::format("@{}", url_encode(revision, false));  // '/' must not make another folder
  return cache_dir / name;
}

std::optional<std::filesystem::path> find_pulled(const std::filesystem::path& cache_dir,
                                                 std::string_view repo, std::string_view revision) {
  if (!is_repo_id(repo) || !is_safe_path(revision)) return std::nullopt;
  const auto folder = repo_folder(cache_dir, repo, revision);
  const Manifest manifest = read_manifest(folder);
  if (manifest.files.empty()) return std::nullopt;
  std::vector<std::string> ggufs;
  for (const auto& [name, file] : manifest.files) {
    if (name.ends_with(".gguf")) ggufs.push_back(name);
  }
  if (ggufs.size() == 1 && !manifest.files.contains("config.json")) return folder / ggufs[0];
  return folder;
}

Result<std::filesystem::path> pull(const PullOptions& given) {
  PullOptions options = given;
  SNUG_TRY(check_options(options));
  SNUG_ASSIGN(const auto all, list_files(options));
  SNUG_ASSIGN(const auto files, select_files(options, all));

  const auto folder = repo_folder(options.cache_dir, options.repo, options.revision);
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) {
    return Error{ErrorCode::failed, fmt::format("{}: cannot be created: {}", folder.string(), code.message()),
                 "check permissions, or choose another cache folder"};
  }
  SNUG_ASSIGN(const auto lock, FolderLock::take(folder));

  Manifest manifest = read_manifest(folder);
  std::vector<HubFile> missing;
  std::int64_t needed = 0;
  for (const HubFile& file : files) {
    if (is_complete(folder / file.path, file, manifest)) {
      manifest.files[file.path] = file;
      continue;
    }
    manifest.files.erase(file.path);
    missing.push_back(file);
    needed += file.size - part_bytes(folder, file);
  }
  SNUG_TRY(check_free_space(folder, needed));
  for (const HubFile& file : missing) {
    SNUG_TRY(download(options, folder, file));
    manifest.files[file.path] = file;
    SNUG_TRY(write_manifest(folder, manifest, options.repo, options.revision));
  }
  if (missing.empty()) SNUG_TRY(write_manifest(folder, manifest, options.repo, options.revision));
  return find_pulled(options.cache_dir, options.repo, options.revision).value_or(folder);
}

}  // namespace snug::cli
