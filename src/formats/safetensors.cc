#include "formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "base/json.h"
#include "formats/bad_file.h"

namespace snug::formats {
namespace {

constexpr std::uint64_t kPrefixBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kMaxTensors = 1 << 18;

std::optional<quant::Format> format_of(std::string_view dtype) {
  if (dtype == "F32") return quant::Format::f32;
  if (dtype == "F16") return quant::Format::f16;
  if (dtype == "BF16") return quant::Format::bf16;
  return std::nullopt;
}

struct HeaderEntry {
  TensorEntry tensor;
  std::array<std::uint64_t, 2> offsets{};
  int offset_count = 0;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

// Reads the header as a stream of JSON events: duplicate keys are seen, and a hostile header costs no more
// memory than its entries. Every method returns false to stop; error() then says why.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view file) : file_(file) {}

  std::vector<HeaderEntry>& entries() { return entries_; }
  const Error& error() const { return *error_; }

  bool null() { return wrong_value(); }
  bool boolean(bool) { return wrong_value(); }
  bool number_float(double, const std::string&) { return wrong_value(); }
  bool number_integer(std::int64_t) { return wrong_value(); }  // negative ones only
  bool binary(std::vector<std::uint8_t>&) { return wrong_value(); }

  bool number_unsigned(std::uint64_t value) {
    if (where_ == Where::shape) {
      auto& shape = entries_.back().tensor.shape;
      if (shape.size() >= kMaxTensorDims) return fail(fmt::format("more than {} dimensions", kMaxTensorDims));
      if (value > static_cast<std::uint64_t>(INT64_MAX)) return wrong_value();
      shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (where_ == Where::offsets) {
      HeaderEntry& entry = entries_.back();
      if (entry.offset_count >= 2) return fail("must hold two numbers");
      entry.offsets[entry.offset_count++] = value;
      return true;
    }
    return wrong_value();
  }

  bool string(std::string& value) {
    if (where_ == Where::metadata) return true;
    if (where_ != Where::entry || field_ != "dtype") return wrong_value();
    const auto format = format_of(value);
    if (!format) {
      value.resize(std::min<std::size_t>(value.size(), 32));
      return fail(fmt::format("{} is not a supported type", value),
                  "supported are F32, F16 and BF16: convert the checkpoint to one of them");
    }
    entries_.back().tensor.format = *format;
    return true;
  }

  bool start_object(std::size_t) {
    switch (where_) {
      case Where::outside:
        where_ = Where::root;
        return true;
      case Where::root:
        where_ = metadata_next_ ? Where::metadata : Where::entry;
        return true;
      default:
        return wrong_value();
    }
  }

  bool key(std::string& name) {
    if (where_ == Where::root) return begin_entry(name);
    if (where_ == Where::metadata) return true;
    HeaderEntry& entry = entries_.back();
    field_ = name;
    bool* seen = field_ == "dtype"          ? &entry.has_dtype
                 : field_ == "shape"        ? &entry.has_shape
                 : field_ == "data_offsets" ? &entry.has_offsets
                                            : nullptr;
    if (seen == nullptr) {
      field_.clear();
      return fail("has a field other than dtype, shape and data_offsets");
    }
    if (*seen) return fail("is there twice");
    *seen = true;
    return true;
  }

  bool end_object() {
    if (where_ == Where::entry) {
      const HeaderEntry& entry = entries_.back();
      field_ = !entry.has_dtype     ? "dtype"
               : !entry.has_shape   ? "shape"
               : !entry.has_offsets ? "data_offsets"
                                    : "";
      if (!field_.empty()) return fail("is missing");
    }
    where_ = where_ == Where::root ? Where::outside : Where::root;
    return true;
  }

  bool start_array(std::size_t) {
    if (where_ == Where::entry && field_ == "shape") {
      where_ = Where::shape;
    } else if (where_ == Where::entry && field_ == "data_offsets") {
      where_ = Where::offsets;
    } else {
      return wrong_value();
    }
    return true;
  }

  bool end_array() {
    if (where_ == Where::offsets && entries_.back().offset_count != 2) return fail("must hold two numbers");
    where_ = Where::entry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) {
    error_ = bad_file(file_, fmt::format("header: not valid JSON at byte {}", kPrefixBytes + position),
                      "the file is damaged: fetch it again");
    return false;
  }

 private:
  enum class Where { outside, root, metadata, entry, shape, offsets };

  bool begin_entry(const std::string& name) {
    field_.clear();
    metadata_next_ = name == "__metadata__";
    if (metadata_next_) return true;
    if (!is_valid_name(name)) {
      error_ =
          bad_file(file_,
                   fmt::format("header: the name of tensor {} is empty, longer than {} bytes or not text",
                               entries_.size(), kMaxNameBytes),
                   "the file is damaged: fetch it again");
      return false;
    }
    if (entries_.size() >= kMaxTensors) {
      error_ = bad_file(file_, fmt::format("header: more than {} tensors", kMaxTensors),
                        "check that this is a model's file");
      return false;
    }
    entries_.emplace_back().tensor.name = name;
    return true;
  }

  // "FILE: tensor NAME: FIELD WHY". The root is an object (checked before), so a key came first.
  bool fail(std::string_view why, std::string_view remedy = "the file is damaged: fetch it again") {
    const std::string at = metadata_next_ ? "__metadata__" : "tensor " + entries_.back().tensor.name;
    error_ = bad_file(file_, fmt::format("{}: {}{}{}", at, field_, field_.empty() ? "" : " ", why), remedy);
    return false;
  }
  bool wrong_value() {
    if (where_ == Where::metadata) return fail("must hold text only");
    return fail("has a value of the wrong kind");
  }

  std::string_view file_;
  std::vector<HeaderEntry> entries_;
  std::optional<Error> error_;
  Where where_ = Where::outside;
  bool metadata_next_ = false;
  std::string field_;
};

// Offsets in order of place, with no hole and no overlap, ending at the end of the file.
Status check_layout(std::vector<HeaderEntry>& entries, std::uint64_t data_begin, std::uint64_t file_size,
                    std::string_view file) {
  std::ranges::sort(entries, {}, [](const HeaderEntry& e) { return std::pair(e.offsets[0], e.offsets[1]); });
  // The size that the file should have comes first: a cut file is the most common fault.
  std::uint64_t data_end = 0;
  for (const HeaderEntry& entry : entries) data_end = std::max(data_end, entry.offsets[1]);
  const std::uint64_t data_size = file_size - data_begin;
  if (data_end > data_size) {
    const auto expected = static_cast<unsigned __int128>(data_begin) + data_end;
    const std::string bytes =
        expected > UINT64_MAX ? "more than 2^64" : fmt::to_string(static_cast<std::uint64_t>(expected));
    return bad_file(
        file,
        fmt::format("data_offsets: the file is cut off: expected {} bytes, it has {}", bytes, file_size),
        "fetch the file again");
  }
  std::uint64_t end = 0;
  const HeaderEntry* previous = nullptr;
  for (HeaderEntry& entry : entries) {
    const std::uint64_t begin = entry.offsets[0], stop = entry.offsets[1];
    const auto refuse = [&](std::string_view why) {
      return bad_file(file,
                      fmt::format("tensor {}: data_offsets [{}, {}] {}", entry.tensor.name, begin, stop, why),
                      "the file is damaged: fetch it again");
    };
    if (begin > stop) return refuse("end before they begin");
    if (begin < end) return refuse(fmt::format("overlap tensor {}", previous->tensor.name));
    if (begin > end) return refuse(fmt::format("leave a hole of {} bytes before them", begin - end));
    SNUG_ASSIGN(const std::int64_t bytes, checked_bytes(entry.tensor, file));
    if (stop - begin != static_cast<std::uint64_t>(bytes)) {
      return refuse(fmt::format("hold {} bytes, but its shape and dtype need {}", stop - begin, bytes));
    }
    entry.tensor.offset = static_cast<std::int64_t>(data_begin + begin);
    entry.tensor.bytes = bytes;
    end = stop;
    previous = &entry;
  }
  if (end != data_size) {
    return bad_file(file,
                    fmt::format("data_offsets: {} bytes follow the last tensor: expected {} bytes, it has {}",
                                data_size - end, data_begin + end, file_size),
                    "the file is damaged: fetch it again");
  }
  return {};
}

}  // namespace

Result<std::vector<TensorEntry>> parse_safetensors(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.size() < kPrefixBytes) {
    return bad_file(
        name,
        fmt::format("header size: the file is cut off: expected 8 bytes or more, it has {}", bytes.size()),
        "fetch the file again");
  }
  std::uint64_t header_size = 0;
  for (std::size_t i = 0; i < kPrefixBytes; ++i) {
    header_size |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  if (header_size > kMaxHeaderBytes) {
    return bad_file(
        name, fmt::format("header size: {} bytes, at most {} are allowed", header_size, kMaxHeaderBytes),
        "check that this is a safetensors file, or fetch it again");
  }
  if (header_size > bytes.size() - kPrefixBytes) {
    return bad_file(name,
                    fmt::format("header size: the file is cut off: expected {} bytes or more, it has {}",
                                header_size + kPrefixBytes, bytes.size()),
                    "fetch the file again");
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kPrefixBytes,
                                static_cast<std::size_t>(header_size));
  if (!header.starts_with('{')) {
    return bad_file(name, "header: must be a JSON object",
                    "check that this is a safetensors file, or fetch it again");
  }
  HeaderReader reader(name);
  if (!Json::sax_parse(header.begin(), header.end(), &reader)) return reader.error();

  std::vector<HeaderEntry>& entries = reader.entries();
  std::unordered_set<std::string_view> names;
  for (const HeaderEntry& entry : entries) {
    if (!names.insert(entry.tensor.name).second) {
      return bad_file(name, fmt::format("tensor {}: is there twice", entry.tensor.name),
                      "the file is damaged: fetch it again");
    }
  }
  names.clear();  // its views go stale when the entries are sorted
  SNUG_TRY(check_layout(entries, kPrefixBytes + header_size, bytes.size(), name));
  std::vector<TensorEntry> tensors;
  tensors.reserve(entries.size());
  for (HeaderEntry& entry : entries) tensors.push_back(std::move(entry.tensor));
  return tensors;
}

}  // namespace snug::formats
