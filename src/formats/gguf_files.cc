#include "formats/gguf_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/bad_file.h"

namespace snug::formats {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxParts = 1024;

// "-00002-of-00003.gguf", counted from 0.
std::string part_suffix(std::int64_t part, std::int64_t parts) {
  return fmt::format("-{:05}-of-{:05}.gguf", part + 1, parts);
}

// The names of all parts, from the first one's.
Result<std::vector<fs::path>> part_paths(const fs::path& path, const Gguf& first, std::int64_t parts) {
  const std::string file = path.string();
  SNUG_ASSIGN(const auto number, first.get_int("split.no", 0, kMaxParts));
  const std::string name = path.filename().string();
  const std::string own = part_suffix(number.value_or(0), parts);
  if (!name.ends_with(own)) {
    return bad_file(file,
                    fmt::format("split.count: part {} of {}, whose name must end in {}",
                                number.value_or(0) + 1, parts, own),
                    "give the file its original name back");
  }
  const std::string stem = name.substr(0, name.size() - own.size());
  if (number.value_or(0) != 0) {
    return bad_file(file, fmt::format("split.no: this is part {} of {}", *number + 1, parts),
                    fmt::format("give the first part: {}{}", stem, part_suffix(0, parts)));
  }
  std::vector<fs::path> paths;
  std::vector<std::string> missing;
  for (std::int64_t part = 0; part < parts; ++part) {
    paths.push_back(path.parent_path() / (stem + part_suffix(part, parts)));
    std::error_code code;
    if (!fs::is_regular_file(paths.back(), code)) missing.push_back(paths.back().filename().string());
  }
  if (!missing.empty()) {
    return bad_file(
        file,
        fmt::format("split.count: the model has {} parts, {} of them are present; missing: {}", parts,
                    parts - static_cast<std::int64_t>(missing.size()), fmt::join(missing, ", ")),
        "fetch the missing parts into the same folder");
  }
  return paths;
}

Status add_tensors(WeightIndex& weights, std::vector<TensorEntry> tensors, const std::string& file) {
  const int number = static_cast<int>(weights.files.size()) - 1;
  for (TensorEntry& tensor : tensors) {
    tensor.file = number;
    const auto [at, is_new] = weights.tensors.try_emplace(tensor.name, tensor);
    if (!is_new) {
      return bad_file(file,
                      fmt::format("tensor {}: is also in {}", tensor.name,
                                  weights.files[at->second.file]->path().filename().string()),
                      "the parts do not belong together: fetch them again");
    }
  }
  return {};
}

}  // namespace

Result<GgufFiles> open_gguf_files(const fs::path& path) {
  GgufFiles out;
  SNUG_ASSIGN(MappedFile mapped, MappedFile::open(path));
  SNUG_ASSIGN(out.gguf, parse_gguf(mapped.bytes(), path.string()));
  out.weights.files.push_back(std::make_shared<MappedFile>(std::move(mapped)));  // keeps the address
  SNUG_TRY(add_tensors(out.weights, out.gguf.tensors, path.string()));
  SNUG_ASSIGN(const auto parts, out.gguf.get_int("split.count", 0, kMaxParts));
  if (parts.value_or(0) <= 1) return out;

  SNUG_ASSIGN(const auto paths, part_paths(path, out.gguf, *parts));
  for (std::int64_t part = 1; part < *parts; ++part) {
    const fs::path& next = paths[static_cast<std::size_t>(part)];
    SNUG_ASSIGN(MappedFile more, MappedFile::open(next));
    SNUG_ASSIGN(Gguf gguf, parse_gguf(more.bytes(), next.string()));
    SNUG_ASSIGN(const auto number, gguf.get_int("split.no", 0, kMaxParts));
    SNUG_ASSIGN(const auto count, gguf.get_int("split.count", 0, kMaxParts));
    if (number != part || count != parts) {
      return bad_file(next.string(), fmt::format("split.no: is not part {} of {}", part + 1, *parts),
                      "the parts do not belong together: fetch them again");
    }
    out.weights.files.push_back(std::make_shared<MappedFile>(std::move(more)));
    SNUG_TRY(add_tensors(out.weights, std::move(gguf.tensors), next.string()));
  }
  out.gguf.tensors.clear();
  for (const auto& [name, tensor] : out.weights.tensors) out.gguf.tensors.push_back(tensor);
  SNUG_ASSIGN(const auto total, out.gguf.get_int("split.tensors.count", 0, INT64_MAX));
  if (total && *total != static_cast<std::int64_t>(out.gguf.tensors.size())) {
    return bad_file(path.string(),
                    fmt::format("split.tensors.count: {} tensors expected, the parts hold {}", *total,
                                out.gguf.tensors.size()),
                    "fetch the parts again");
  }
  return out;
}

}  // namespace snug::formats
