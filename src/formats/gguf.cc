#include "formats/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "formats/bad_file.h"

namespace snug::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

constexpr std::uint64_t kMaxKeys = 1 << 16;
constexpr std::uint64_t kMaxTensors = 1 << 18;
constexpr std::uint64_t kMaxArrayElements = 1 << 24;  // of all arrays together: a vocabulary has some 10^5
constexpr std::uint64_t kMaxAlignment = 1 << 20;
constexpr std::uint32_t kMaxGgufDims = 4;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr const char* kDamaged = "the file is damaged: fetch it again";

// Type ids of metadata values.
enum ValueType : std::uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// The fewest bytes that a value of this type takes in the file; 0 for an unknown type.
std::uint64_t smallest_size(std::uint32_t type) {
  switch (type) {
    case kUint8:
    case kInt8:
    case kBool:
      return 1;
    case kUint16:
    case kInt16:
      return 2;
    case kUint32:
    case kInt32:
    case kFloat32:
      return 4;
    case kString:
    case kUint64:
    case kInt64:
    case kFloat64:
      return 8;
    case kArray:
      return 12;
    default:
      return 0;
  }
}

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  Result<Gguf> read();

 private:
  std::uint64_t left() const { return bytes_.size() - at_; }
  Error refuse(std::string_view what, std::string_view remedy = kDamaged) const {
    return bad_file(file_, what, remedy);
  }
  Error cut_off(std::string_view field) const {
    return refuse(fmt::format("{}: the file is cut off: more than {} bytes expected, it has {}", field, at_,
                              bytes_.size()),
                  "fetch the file again");
  }

  template <class T>
  Result<T> number(std::string_view field) {
    if (left() < sizeof(T)) return cut_off(field);
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  Result<std::string_view> string(std::string_view field) {
    SNUG_ASSIGN(const auto size, number<std::uint64_t>(field));
    if (size > left()) {
      return refuse(fmt::format("{}: a string of {} bytes, but only {} bytes of the file are left", field,
                                size, left()));
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_,
                                static_cast<std::size_t>(size));
    at_ += size;
    return text;
  }

  Result<std::string_view> name(std::string_view field) {
    SNUG_ASSIGN(const auto text, string(field));
    if (!is_valid_name(text)) {
      return refuse(
          fmt::format("{}: a name is empty, longer than {} bytes or not text", field, kMaxNameBytes));
    }
    return text;
  }

  Status header();
  Status metadata();
  Status tensor_infos();
  Status place_tensors();
  Result<GgufValue> value(std::uint32_t type, std::string_view key);
  Result<GgufValue> array(std::string_view key);
  Result<std::int64_t> integer(std::uint32_t type, std::string_view key);

  std::span<const std::byte> bytes_;
  std::string file_;
  std::uint64_t at_ = 0;
  std::uint64_t tensor_count_ = 0, key_count_ = 0, array_elements_ = 0;
  Gguf gguf_;
};

Status Reader::header() {
  if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
    return refuse("magic: does not begin with GGUF", "check that this is a GGUF file, or fetch it again");
  }
  at_ = 4;
  SNUG_ASSIGN(gguf_.version, number<std::uint32_t>("version"));
  if (gguf_.version != 0 && (gguf_.version & 0xFFFF) == 0) {
    return refuse("version: the file is big-endian", "convert the model to a little-endian GGUF");
  }
  if (gguf_.version != 2 && gguf_.version != 3) {
    return refuse(fmt::format("version: {} is not supported, only 2 and 3", gguf_.version),
                  "convert the model again with a current converter");
  }
  SNUG_ASSIGN(tensor_count_, number<std::uint64_t>("tensor_count"));
  SNUG_ASSIGN(key_count_, number<std::uint64_t>("metadata_kv_count"));
  constexpr std::uint64_t kSmallestKey = 8 + 1 + 4 + 1, kSmallestTensor = 8 + 1 + 4 + 8 + 4 + 8;
  if (tensor_count_ > kMaxTensors || tensor_count_ * kSmallestTensor > left()) {
    return refuse(fmt::format("tensor_count: {} tensors cannot be in a file of {} bytes", tensor_count_,
                              bytes_.size()));
  }
  if (key_count_ > kMaxKeys || key_count_ * kSmallestKey > left()) {
    return refuse(
        fmt::format("metadata_kv_count: {} keys cannot be in a file of {} bytes", key_count_, bytes_.size()));
  }
  return {};
}

Result<std::int64_t> Reader::integer(std::uint32_t type, std::string_view key) {
  const auto widen = [](auto result) -> Result<std::int64_t> {
    if (!result.ok()) return result.error();
    return static_cast<std::int64_t>(*result);
  };
  switch (type) {
    case kUint8:
      return widen(number<std::uint8_t>(key));
    case kInt8:
      return widen(number<std::int8_t>(key));
    case kUint16:
      return widen(number<std::uint16_t>(key));
    case kInt16:
      return widen(number<std::int16_t>(key));
    case kUint32:
      return widen(number<std::uint32_t>(key));
    case kInt32:
      return widen(number<std::int32_t>(key));
    case kInt64:
      return number<std::int64_t>(key);
    case kBool: {
      SNUG_ASSIGN(const auto byte, number<std::uint8_t>(key));
      if (byte > 1) return refuse(fmt::format("{}: {} is not a truth value", key, byte));
      return static_cast<std::int64_t>(byte);
    }
    default: {
      SNUG_ASSIGN(const auto wide, number<std::uint64_t>(key));
      if (wide > static_cast<std::uint64_t>(INT64_MAX))
        return refuse(fmt::format("{}: {} is out of range", key, wide));
      return static_cast<std::int64_t>(wide);
    }
  }
}

Result<GgufValue> Reader::value(std::uint32_t type, std::string_view key) {
  switch (type) {
    case kFloat32: {
      SNUG_ASSIGN(const auto x, number<float>(key));
      return GgufValue(static_cast<double>(x));
    }
    case kFloat64: {
      SNUG_ASSIGN(const auto x, number<double>(key));
      return GgufValue(x);
    }
    case kString: {
      SNUG_ASSIGN(const auto text, string(key));
      return GgufValue(text);
    }
    case kUint64: {
      SNUG_ASSIGN(const auto x, number<std::uint64_t>(key));
      return GgufValue(x);
    }
    case kArray:
      return array(key);
    case kBool: {
      SNUG_ASSIGN(const auto x, integer(type, key));
      return GgufValue(x != 0);
    }
    default:
      if (smallest_size(type) == 0) return refuse(fmt::format("{}: value type {} is unknown", key, type));
      SNUG_ASSIGN(const auto x, integer(type, key));
      return GgufValue(x);
  }
}

Result<GgufValue> Reader::array(std::string_view key) {
  SNUG_ASSIGN(const auto type, number<std::uint32_t>(key));
  SNUG_ASSIGN(const auto count, number<std::uint64_t>(key));
  const std::uint64_t size = smallest_size(type);
  if (size == 0) return refuse(fmt::format("{}: element type {} is unknown", key, type));
  if (type == kArray) return refuse(fmt::format("{}: arrays of arrays are not supported", key));
  if (count > left() / size) {
    return refuse(fmt::format("{}: {} elements cannot be in the {} bytes that are left", key, count, left()));
  }
  array_elements_ += count;  // cannot wrap: each count is at most the file's size
  if (array_elements_ > kMaxArrayElements) {
    return refuse(
        fmt::format("{}: {} elements; at most {} are allowed in all arrays", key, count, kMaxArrayElements));
  }
  const auto fill = [&](auto list, auto&& next) -> Result<GgufValue> {
    list.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      auto element = next();
      if (!element.ok()) return element.error();
      list.push_back(*element);
    }
    return GgufValue(std::move(list));
  };
  switch (type) {
    case kString:
      return fill(std::vector<std::string_view>{}, [&] { return string(key); });
    case kFloat32:
      return fill(std::vector<double>{}, [&] { return number<float>(key); });
    case kFloat64:
      return fill(std::vector<double>{}, [&] { return number<double>(key); });
    default:
      return fill(std::vector<std::int64_t>{}, [&] { return integer(type, key); });
  }
}

Status Reader::metadata() {
  for (std::uint64_t i = 0; i < key_count_; ++i) {
    SNUG_ASSIGN(const auto key, name(fmt::format("metadata key {}", i)));
    SNUG_ASSIGN(const auto type, number<std::uint32_t>(key));
    SNUG_ASSIGN(auto read, value(type, key));
    if (!gguf_.metadata.emplace(key, std::move(read)).second)
      return refuse(fmt::format("{}: is there twice", key));
  }
  return {};
}

std::string supported_types() {
  std::string text;
  for (const quant::FormatInfo& format : quant::all_formats())
    text.append(text.empty() ? "" : ", ").append(format.name);
  return text;
}

// Leaves each offset as in the file: from the start of the data.
Status Reader::tensor_infos() {
  std::set<std::string_view> names;
  gguf_.tensors.reserve(static_cast<std::size_t>(tensor_count_));
  for (std::uint64_t i = 0; i < tensor_count_; ++i) {
    SNUG_ASSIGN(const auto text, name(fmt::format("tensor {}", i)));
    if (!names.insert(text).second) return refuse(fmt::format("tensor {}: is there twice", text));
    TensorEntry entry;
    entry.name = text;
    const std::string field = "tensor " + entry.name;
    SNUG_ASSIGN(const auto dims, number<std::uint32_t>(field));
    if (dims < 1 || dims > kMaxGgufDims) {
      return refuse(fmt::format("{}: n_dims must be 1 to {}, not {}", field, kMaxGgufDims, dims));
    }
    for (std::uint32_t d = 0; d < dims; ++d) {
      SNUG_ASSIGN(const auto dim, number<std::uint64_t>(field));
      if (dim > static_cast<std::uint64_t>(INT64_MAX))
        return refuse(fmt::format("{}: shape is too large", field));
      entry.shape.push_back(static_cast<std::int64_t>(dim));
    }
    std::ranges::reverse(entry.shape);
    SNUG_ASSIGN(const auto type, number<std::uint32_t>(field));
    const auto format = quant::format_from_gguf_type(type);
    if (!format) {
      return refuse(fmt::format("{}: type {} is not supported", field, type),
                    fmt::format("convert the model to one of: {}", supported_types()));
    }
    entry.format = *format;
    SNUG_ASSIGN(entry.bytes, checked_bytes(entry, file_));
    SNUG_ASSIGN(const auto offset, number<std::uint64_t>(field));
    if (offset > static_cast<std::uint64_t>(INT64_MAX)) {
      return refuse(fmt::format("{}: offset {} is out of range", field, offset));
    }
    entry.offset = static_cast<std::int64_t>(offset);
    gguf_.tensors.push_back(std::move(entry));
  }
  return {};
}

Status Reader::place_tensors() {
  std::uint64_t alignment = kDefaultAlignment;
  SNUG_ASSIGN(const auto stated, gguf_.get_int("general.alignment", 1, kMaxAlignment));
  if (stated) alignment = static_cast<std::uint64_t>(*stated);
  if (!std::has_single_bit(alignment) || alignment < 8) {
    return refuse(fmt::format("general.alignment: {} must be a power of two of 8 or more", alignment));
  }
  const std::uint64_t begin = (at_ + alignment - 1) / alignment * alignment;
  std::vector<TensorEntry*> order;
  order.reserve(gguf_.tensors.size());
  for (TensorEntry& tensor : gguf_.tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, [](const TensorEntry* t) { return t->offset; });

  std::int64_t end = 0;  // of the previous tensor
  const TensorEntry* previous = nullptr;
  for (TensorEntry* tensor : order) {
    const std::string field = fmt::format("tensor {}: offset {}", tensor->name, tensor->offset);
    if (static_cast<std::uint64_t>(tensor->offset) % alignment != 0) {
      return refuse(fmt::format("{} is not a multiple of general.alignment {}", field, alignment));
    }
    if (tensor->offset < end) return refuse(fmt::format("{} overlaps tensor {}", field, previous->name));
    std::int64_t in_file = 0;
    if (__builtin_add_overflow(tensor->offset, tensor->bytes, &end) ||
        __builtin_add_overflow(static_cast<std::int64_t>(begin), tensor->offset, &in_file) ||
        __builtin_add_overflow(in_file, tensor->bytes, &in_file)) {
      return refuse(fmt::format("{} is out of range", field));
    }
    previous = tensor;
  }
  // The last tensor says how long the whole file must be.
  if (previous != nullptr && begin + static_cast<std::uint64_t>(end) > bytes_.size()) {
    return refuse(fmt::format("tensor {}: the file is cut off: expected {} bytes, it has {}", previous->name,
                              begin + static_cast<std::uint64_t>(end), bytes_.size()),
                  "fetch the file again");
  }
  for (TensorEntry& tensor : gguf_.tensors) tensor.offset += static_cast<std::int64_t>(begin);
  return {};
}

Result<Gguf> Reader::read() {
  gguf_.name = file_;
  SNUG_TRY(header());
  SNUG_TRY(metadata());
  SNUG_TRY(tensor_infos());
  SNUG_TRY(place_tensors());
  return std::move(gguf_);
}

}  // namespace

Result<Gguf> parse_gguf(std::span<const std::byte> bytes, std::string_view name) {
  return Reader(bytes, name).read();
}

}  // namespace snug::formats
