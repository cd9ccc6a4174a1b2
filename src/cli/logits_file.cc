#include "cli/logits_file.h"

#include <fmt/format.h>

#include "base/json.h"

namespace snug::cli {

Result<LogitsFile> LogitsFile::create(const std::filesystem::path& path,
                                      std::span<const std::int64_t> lengths, std::int64_t vocab) {
  Json header = Json::object();
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int64_t bytes = lengths[i] * vocab * static_cast<std::int64_t>(sizeof(float));
    header[fmt::format("logits.{}", i)] = {
        {"dtype", "F32"}, {"shape", {lengths[i], vocab}}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the format asks for data aligned to 8 bytes
  const std::uint64_t size = text.size();
  LogitsFile file;
  file.path_ = path;
  file.out_.open(path, std::ios::binary | std::ios::trunc);
  file.out_.write(reinterpret_cast<const char*>(&size), sizeof(size));
  file.out_.write(text.data(), static_cast<std::streamsize>(text.size()));
  SNUG_TRY(file.check());
  return file;
}

Status LogitsFile::append(const float* values, std::int64_t count) {
  out_.write(reinterpret_cast<const char*>(values), count * static_cast<std::streamsize>(sizeof(float)));
  return check();
}

Status LogitsFile::close() {
  out_.close();
  return check();
}

Status LogitsFile::check() const {
  if (out_) return {};
  return Error{ErrorCode::failed, fmt::format("{}: cannot be written", path_.string()),
               "check free space and permissions"};
}

}  // namespace snug::cli
