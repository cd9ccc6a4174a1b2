#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "formats/bad_file.h"
#include "formats/safetensors.h"

namespace snug::formats {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr std::size_t kMaxIndexBytes = 64 << 20;
constexpr std::size_t kMaxShards = 4096;
constexpr std::size_t kListed = 10;  // at most so many names in a message

using WeightMap = std::map<std::string, std::string>;  // tensor to file name

bool is_file(const fs::path& path) {
  std::error_code code;
  return fs::is_regular_file(path, code);
}

std::string listed(const std::vector<std::string>& names) {
  const std::size_t n = std::min(names.size(), kListed);
  auto text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(n), ", "));
  if (names.size() > n) text += fmt::format(" and {} more", names.size() - n);
  return text;
}

// A plain name in the same folder: an index must not make Snug open files elsewhere.
bool is_plain_shard_name(std::string_view name) {
  return is_valid_name(name) && name.find_first_of("/\\") == std::string_view::npos &&
         !name.starts_with('.') && name.ends_with(".safetensors");
}

Result<WeightMap> read_weight_map(const fs::path& path) {
  const std::string file = path.string();
  SNUG_ASSIGN(const std::string text, read_text_file(path, kMaxIndexBytes));
  SNUG_ASSIGN(const Json json, parse_json(text, file));
  const char* remedy = "fetch the index again";
  if (!json.is_object()) return bad_file(file, "must be a JSON object", remedy);
  const auto map = json.find("weight_map");
  if (map == json.end()) return bad_file(file, "weight_map is missing", remedy);
  if (!map->is_object() || map->empty()) {
    return bad_file(file, "weight_map must be an object of tensor names and file names", remedy);
  }
  WeightMap result;
  for (const auto& [tensor, shard] : map->items()) {
    if (!is_valid_name(tensor)) {
      return bad_file(
          file,
          fmt::format("weight_map: a tensor name is empty, longer than {} bytes or not text", kMaxNameBytes),
          remedy);
    }
    if (!shard.is_string()) {
      return bad_file(file, fmt::format("weight_map: {} must name a file", tensor), remedy);
    }
    const auto& name = shard.get_ref<const std::string&>();
    if (!is_plain_shard_name(name)) {
      return bad_file(
          file,
          fmt::format("weight_map: {} names {}, which is not a .safetensors file of this folder", tensor,
                      is_valid_name(name) ? name : "something that is not a file name"),
          "an index may name only files beside it: fetch the checkpoint again from a source you trust");
    }
    result.emplace(tensor, name);
  }
  return result;
}

// Maps one file and returns its entries with their file index set.
Result<std::vector<TensorEntry>> add_file(WeightIndex& index, const fs::path& path) {
  SNUG_ASSIGN(MappedFile mapped, MappedFile::open(path));
  SNUG_ASSIGN(auto tensors, parse_safetensors(mapped.bytes(), path.string()));
  for (TensorEntry& tensor : tensors) tensor.file = static_cast<int>(index.files.size());
  index.files.push_back(std::make_shared<MappedFile>(std::move(mapped)));
  return tensors;
}

Result<WeightIndex> open_single(const fs::path& path) {
  WeightIndex index;
  SNUG_ASSIGN(auto tensors, add_file(index, path));
  for (TensorEntry& tensor : tensors) index.tensors.emplace(tensor.name, std::move(tensor));
  return index;
}

// The headers say where each tensor is; the map says which tensors there must be.
Result<WeightIndex> open_shards(const fs::path& folder, const WeightMap& map,
                                const std::set<std::string>& shards) {
  const std::string index_name = (folder / kIndexFile).string();
  WeightIndex index;
  std::vector<std::string> unlisted;
  for (const std::string& shard : shards) {
    SNUG_ASSIGN(auto tensors, add_file(index, folder / shard));
    for (TensorEntry& tensor : tensors) {
      const auto mapped = map.find(tensor.name);
      if (mapped == map.end()) unlisted.push_back(tensor.name);
      const auto [at, is_new] = index.tensors.try_emplace(tensor.name, tensor);
      if (is_new) continue;
      // In two shards: only the index can say which one counts.
      const std::string first = index.files[at->second.file]->path().filename().string();
      if (mapped == map.end() || (mapped->second != shard && mapped->second != first)) {
        return bad_file((folder / shard).string(),
                        fmt::format("tensor {}: is also in {}", tensor.name, first),
                        "files of two checkpoints seem to be mixed: fetch the checkpoint again");
      }
      if (mapped->second == shard) at->second = std::move(tensor);
    }
  }
  std::vector<std::string> missing, moved;
  for (const auto& [tensor, shard] : map) {
    const auto at = index.tensors.find(tensor);
    if (at == index.tensors.end()) {
      missing.push_back(tensor);
    } else if (index.files[at->second.file]->path().filename() != shard) {
      moved.push_back(tensor);
    }
  }
  if (!missing.empty()) {
    return bad_file(index_name,
                    fmt::format("weight_map: {} of {} tensors are in no shard: {}", missing.size(),
                                map.size(), listed(missing)),
                    "fetch the index and the shards again from one source");
  }
  if (!moved.empty()) {
    index.warnings.push_back(
        fmt::format("{}: weight_map is out of date: {} tensors are in another shard than it says "
                    "({}); the shards' own headers were used",
                    index_name, moved.size(), listed(moved)));
  }
  if (!unlisted.empty()) {
    index.warnings.push_back(
        fmt::format("{}: weight_map is out of date: {} tensors of the shards are not in it ({}); "
                    "the shards' own headers were used",
                    index_name, unlisted.size(), listed(unlisted)));
  }
  return index;
}

Error no_weights(const fs::path& folder) {
  std::error_code code;
  std::size_t others = 0;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    if (it->path().extension() == ".safetensors") ++others;
  }
  if (others > 0) {
    return bad_file(
        folder.string(),
        fmt::format("{} is missing, though {} other .safetensors files are there", kIndexFile, others),
        fmt::format("fetch {}, which says what each shard holds", kIndexFile));
  }
  return bad_file(folder.string(), fmt::format("neither {} nor {} is there", kSingleFile, kIndexFile),
                  "fetch the weights, or give another folder");
}

}  // namespace

Result<WeightIndex> open_safetensors_folder(const fs::path& folder) {
  const bool has_single = is_file(folder / kSingleFile);
  if (!is_file(folder / kIndexFile)) {
    if (has_single) return open_single(folder / kSingleFile);
    return no_weights(folder);
  }
  SNUG_ASSIGN(const WeightMap map, read_weight_map(folder / kIndexFile));
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map) shards.insert(shard);
  const std::string index_name = (folder / kIndexFile).string();
  if (shards.size() > kMaxShards) {
    return bad_file(
        index_name,
        fmt::format("weight_map: names {} files, at most {} are allowed", shards.size(), kMaxShards),
        "fetch the index again");
  }
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    if (!is_file(folder / shard)) missing.push_back(shard);
  }
  if (missing.empty()) return open_shards(folder, map, shards);
  const std::string what = fmt::format("weight_map: names {} files, {} of them are present; missing: {}",
                                       shards.size(), shards.size() - missing.size(), listed(missing));
  if (!has_single) {
    return bad_file(index_name, what, "fetch the missing files (`snug pull` resumes where it stopped)");
  }
  SNUG_ASSIGN(WeightIndex index, open_single(folder / kSingleFile));
  index.warnings.push_back(fmt::format("{}: {}; {} was used instead", index_name, what, kSingleFile));
  return index;
}

}  // namespace snug::formats
