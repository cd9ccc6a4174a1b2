// Small models in temporary folders: copies of the reference models, altered copies, and a tokenizer.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>

#include "cli/program.h"

namespace snug::program {

#define SNUG_NEEDS_GOLDEN_MODELS()                                                                       \
  if (!std::filesystem::exists(SNUG_GOLDEN_DIR "/text")) {                                               \
    GTEST_SKIP() << "the reference models are not at " << SNUG_GOLDEN_DIR << "/text: nothing to run on"; \
  }

inline fs::path golden_model(const std::string& name) {
  return fs::path(SNUG_GOLDEN_DIR) / "text" / name;
}

// Copies a reference model's files but not its expected results. The copies can be written to.
inline void copy_model(const std::string& name, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(golden_model(name))) {
    const std::string file = entry.path().filename().string();
    if (!file.starts_with("golden")) write_file(to / file, read_file(entry.path()));
  }
}

// Reads, alters and writes a JSON file.
inline void edit_json(const fs::path& path, const std::function<void(OrderedJson&)>& edit) {
  OrderedJson json = OrderedJson::parse(read_file(path));
  edit(json);
  write_file(path, json.dump(1));
}

inline void set_field(const fs::path& path, const std::string& field, const OrderedJson& value) {
  edit_json(path, [&](OrderedJson& json) { json[field] = value; });
}

// Alters the header of a safetensors file and keeps its data.
inline void edit_header(const fs::path& path, const std::function<void(OrderedJson&)>& edit) {
  const std::string bytes = read_file(path);
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof(size));
  OrderedJson header = OrderedJson::parse(bytes.substr(8, size));
  edit(header);
  const std::string text = header.dump();
  const std::uint64_t new_size = text.size();
  std::string prefix(8, '\0');
  std::memcpy(prefix.data(), &new_size, sizeof(new_size));
  write_file(path, prefix + text + bytes.substr(8 + size));
}

// Overwrites bytes of a file at an offset.
inline void patch(const fs::path& path, std::size_t offset, const void* bytes, std::size_t count) {
  std::string text = read_file(path);
  ASSERT_LE(offset + count, text.size());
  std::memcpy(text.data() + offset, bytes, count);
  write_file(path, text);
}

inline constexpr int kChatEnd = 257;  // <|im_end|>

// A tokenizer of one token per byte, whose id is the byte's value, and two special tokens, with a ChatML
// template. Where `size` is more than these 258, tokens such as "<300>" fill it: only ids with a text are
// sampled.
inline void add_byte_tokenizer(const fs::path& folder, int size = kChatEnd + 1, int chat_end = kChatEnd) {
  const auto utf8 = [](int c) {
    std::string s;
    if (c < 0x80) return s += static_cast<char>(c);
    s += static_cast<char>(0xC0 | (c >> 6));
    return s += static_cast<char>(0x80 | (c & 0x3F));
  };
  // Bytes that are printable stand for themselves; the others follow from 256 on.
  OrderedJson vocab = OrderedJson::object();
  int next = 256, id = 0;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    vocab[utf8(printable ? b : next++)] = id++;
  }
  OrderedJson added = OrderedJson::array();
  for (int token = 256; token < std::max(size, chat_end + 1); ++token) {
    const std::string content = token == 256        ? "<|im_start|>"
                                : token == chat_end ? "<|im_end|>"
                                                    : "<" + std::to_string(token) + ">";
    added.push_back({{"id", token}, {"content", content}, {"special", token == 256 || token == chat_end}});
  }
  const OrderedJson byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", true}};
  const OrderedJson tokenizer = {
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", OrderedJson::array()}}}};
  write_file(folder / "tokenizer.json", tokenizer.dump());
  write_file(folder / "tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  write_file(folder / "chat_template.jinja",
             "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
}

// The ids that add_byte_tokenizer() gives to plain text.
inline std::vector<int> byte_ids(const std::string& text) {
  return {reinterpret_cast<const unsigned char*>(text.data()),
          reinterpret_cast<const unsigned char*>(text.data()) + text.size()};
}

inline std::string joined(const std::vector<int>& ids) {
  std::string text;
  for (const int id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

// A copy of qwen2-mha (vocabulary 1000, 2 layers) with a tokenizer.
inline void chat_model(const fs::path& folder) {
  copy_model("qwen2-mha", folder);
  add_byte_tokenizer(folder);
}

}  // namespace snug::program
