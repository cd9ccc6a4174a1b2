#include "formats/vocab_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "formats/bad_file.h"

namespace snug::formats {
namespace {

// What nlohmann's parser calls as it reads. Each returns false to stop, after leaving a message in `problem`.
class VocabHandler {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  VocabHandler(VocabLayout layout, BpeVocab& vocab) : layout_(layout), vocab_(vocab) {}

  Json root;
  std::string problem;

  bool null() { return scalar(nullptr); }
  bool boolean(bool value) { return scalar(value); }
  bool number_integer(number_integer_t value) {
    if (inside_ == Inside::vocab) return token_id(value);
    return scalar(value);
  }
  bool number_unsigned(number_unsigned_t value) {
    if (inside_ == Inside::vocab) {
      constexpr auto kMost = static_cast<number_unsigned_t>(std::numeric_limits<number_integer_t>::max());
      return token_id(static_cast<number_integer_t>(std::min(value, kMost)));
    }
    return scalar(value);
  }
  bool number_float(number_float_t value, const string_t&) { return scalar(value); }
  bool binary(binary_t&) { return fail("binary data"); }

  bool string(string_t& value) {
    if (inside_ == Inside::merges) {
      return vocab_.add_merge_line(value) || fail(merge_message());
    }
    if (inside_ == Inside::pair) {
      if (pair_size_ == 2) return fail(merge_message());
      pair_[pair_size_++].swap(value);
      return true;
    }
    return scalar(std::move(value));
  }

  bool key(string_t& value) {
    key_.swap(value);
    return true;
  }

  bool start_object(std::size_t) {
    if (inside_ != Inside::rest) return fail(wrong_message());
    const bool is_vocab = layout_ == VocabLayout::vocab_json ? stack_.empty()
                                                             : stack_.size() == 2 && stack_[1] == model_ &&
                                                                   model_ != nullptr && key_ == "vocab";
    if (is_vocab) {
      vocab_.texts.clear();
      vocab_.entries.clear();
      inside_ = Inside::vocab;
      return true;
    }
    const bool is_model = stack_.size() == 1 && stack_[0]->is_object() && key_ == "model";
    if (!open(Json::object())) return false;
    if (is_model) model_ = stack_.back();
    return true;
  }
  bool end_object() {
    if (inside_ == Inside::vocab) {
      inside_ = Inside::rest;
    } else {
      stack_.pop_back();
    }
    return true;
  }

  bool start_array(std::size_t) {
    if (inside_ == Inside::merges) {
      inside_ = Inside::pair;
      pair_size_ = 0;
      return true;
    }
    if (inside_ != Inside::rest) return fail(wrong_message());
    if (layout_ == VocabLayout::tokenizer_json && stack_.size() == 2 && stack_[1] == model_ &&
        key_ == "merges") {
      vocab_.merge_texts.clear();
      vocab_.merges.clear();
      inside_ = Inside::merges;
      return true;
    }
    return open(Json::array());
  }
  bool end_array() {
    if (inside_ == Inside::pair) {
      if (pair_size_ != 2) return fail(merge_message());
      vocab_.add_merge(pair_[0], pair_[1]);
      inside_ = Inside::merges;
    } else if (inside_ == Inside::merges) {
      inside_ = Inside::rest;
    } else {
      stack_.pop_back();
    }
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) {
    return fail(fmt::format("not valid JSON: {}", error.what()));
  }

 private:
  enum class Inside { rest, vocab, merges, pair };

  bool fail(std::string message) {
    problem = std::move(message);
    return false;
  }
  std::string merge_message() const {
    return fmt::format("merges: merge {} must be \"a b\" or [\"a\", \"b\"]", vocab_.merges.size());
  }
  std::string wrong_message() const {
    if (inside_ != Inside::vocab) return merge_message();
    return fmt::format("vocab: the id of {:?} must be a whole number from 0 to {}", key_.substr(0, 60),
                       text::kMaxTokenId);
  }

  bool token_id(number_integer_t id) {
    if (id < 0 || id > text::kMaxTokenId) return fail(wrong_message());
    vocab_.add_token(key_, static_cast<text::TokenId>(id));
    return true;
  }

  template <class T>
  bool scalar(T&& value) {
    if (inside_ != Inside::rest) return fail(wrong_message());
    place(std::forward<T>(value));
    return true;
  }
  Json* place(Json value) {
    if (stack_.empty()) return &(root = std::move(value));
    Json& parent = *stack_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }
  // A parent does not move while its child is open, so the pointers in the stack stay good.
  bool open(Json value) {
    if (stack_.size() >= static_cast<std::size_t>(kMaxJsonDepth)) {
      return fail(fmt::format("JSON nested deeper than {} levels", kMaxJsonDepth));
    }
    stack_.push_back(place(std::move(value)));
    return true;
  }

  const VocabLayout layout_;
  BpeVocab& vocab_;
  std::vector<Json*> stack_;  // open objects and arrays of `root`
  const Json* model_ = nullptr;
  std::string key_;
  Inside inside_ = Inside::rest;
  std::string pair_[2];
  std::size_t pair_size_ = 0;
};

}  // namespace

Result<Json> read_vocab_json(std::string_view text, std::string_view name, VocabLayout layout,
                             BpeVocab& vocab) {
  if (text.size() > kMaxTokenizerBytes) {
    return bad_file(name,
                    fmt::format("{} bytes are more than the {} that a tokenizer may have", text.size(),
                                kMaxTokenizerBytes),
                    "check that this is the right file");
  }
  VocabHandler handler(layout, vocab);
  try {
    if (!Json::sax_parse(text.begin(), text.end(), &handler)) {
      return bad_file(name, handler.problem, "fetch the file again");
    }
  } catch (const Json::exception& e) {
    return bad_file(name, fmt::format("not valid JSON: {}", e.what()), "fetch the file again");
  }
  return std::move(handler.root);
}

}  // namespace snug::formats
