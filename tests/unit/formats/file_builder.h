// Small model files made in memory for the tests of formats/, well-formed unless told otherwise.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "support/temp_folder.h"

namespace snug::formats::built {

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

// The header's size, the header, and `data_bytes` zeros.
inline std::string safetensors(std::string_view header, std::size_t data_bytes) {
  return raw<std::uint64_t>(header.size()) + std::string(header) + std::string(data_bytes, '\0');
}

// One tensor of `floats` zeros, F32.
inline std::string safetensors_of(const std::vector<std::string>& names, int floats = 4) {
  std::string header = "{";
  int at = 0;
  for (const std::string& name : names) {
    header += (at ? ",\"" : "\"") + name + "\":{\"dtype\":\"F32\",\"shape\":[" + std::to_string(floats) +
              "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(at + 4 * floats) + "]}";
    at += 4 * floats;
  }
  return safetensors(header + "}", static_cast<std::size_t>(at));
}

class GgufBuilder {
 public:
  enum Type : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> tensor_count, key_count;  // a lie, where set
  std::uint64_t alignment = 32;
  std::size_t cut = 0;  // bytes left off the end

  static std::string text(std::string_view value) {
    return raw<std::uint64_t>(value.size()) + std::string(value);
  }

  GgufBuilder& key(std::string_view name, std::uint32_t type, std::string_view value) {
    keys_.push_back(text(name) + raw(type) + std::string(value));
    return *this;
  }
  GgufBuilder& set(std::string_view name, std::uint32_t value) { return key(name, u32, raw(value)); }
  GgufBuilder& set(std::string_view name, float value) { return key(name, f32, raw(value)); }
  GgufBuilder& set(std::string_view name, bool value) { return key(name, boolean, raw<char>(value ? 1 : 0)); }
  GgufBuilder& set(std::string_view name, const char* value) { return key(name, string, text(value)); }
  GgufBuilder& set_array(std::string_view name, std::uint32_t type, std::uint64_t count,
                         std::string_view values) {
    return key(name, array, raw(type) + raw(count) + std::string(values));
  }
  // `dims` fastest first, as in the file. `offset` overrides the place right behind the last tensor.
  GgufBuilder& tensor(std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type,
                      std::uint64_t bytes, std::optional<std::uint64_t> offset = {}) {
    std::string info = text(name) + raw(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) info += raw(dim);
    infos_.push_back(info + raw(type) + raw(offset.value_or(end_)));
    end_ = (end_ + bytes + alignment - 1) / alignment * alignment;
    data_bytes_ = end_;
    return *this;
  }
  std::string build() const {
    std::string out = magic + raw(version) + raw<std::uint64_t>(tensor_count.value_or(infos_.size())) +
                      raw<std::uint64_t>(key_count.value_or(keys_.size()));
    for (const std::string& part : keys_) out += part;
    for (const std::string& part : infos_) out += part;
    out.resize((out.size() + alignment - 1) / alignment * alignment + data_bytes_);
    out.resize(out.size() - cut);
    return out;
  }

 private:
  std::vector<std::string> keys_, infos_;
  std::uint64_t end_ = 0, data_bytes_ = 0;
};

// What a small qwen2 model says about itself.
inline GgufBuilder small_gguf() {
  GgufBuilder b;
  b.set("general.architecture", "qwen2")
      .set("qwen2.block_count", 2u)
      .set("qwen2.context_length", 2048u)
      .set("qwen2.embedding_length", 64u)
      .set("qwen2.feed_forward_length", 128u)
      .set("qwen2.attention.head_count", 4u)
      .set("qwen2.attention.head_count_kv", 2u)
      .set("qwen2.attention.layer_norm_rms_epsilon", 1e-6f)
      .set("qwen2.vocab_size", 100u);
  return b;
}

using test::TempFolder;

// The result is a bad_file error whose message has each of the words.
template <class R>
void expect_bad_file(const R& result, const std::vector<std::string>& words) {
  ASSERT_FALSE(result.ok()) << "was accepted";
  EXPECT_EQ(result.error().code, ErrorCode::bad_file);
  for (const std::string& word : words) {
    EXPECT_NE(result.error().to_string().find(word), std::string::npos)
        << "\"" << word << "\" is not in: " << result.error().to_string();
  }
}

}  // namespace snug::formats::built
