#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/nfc.h"
#include "text/pretokenizer.h"
#include "text/string_table.h"
#include "text/utf8.h"

namespace snug::text {

struct Tokenizer::Impl {
  StringTable bytes;                // by id: the bytes of a token, an added token's text
  std::vector<bool> special;        // by id
  std::vector<bool> in_vocabulary;  // by id: an entry in byte-level characters, not only an added token
  std::array<TokenId, 256> byte_tokens{};  // -1: no token for that byte
  MergeTable merges;
  Pretokenizer pretokenizer;
  // Added tokens are looked for in the text as it came, those that ask for it in the normalised text.
  AddedTokenMatcher added_raw, added_normalized;
  bool nfc = false, add_prefix_space = false, ignore_merges = false, add_bos = false, add_eos = false;
  TokenId bos = -1, eos = -1, unk = -1;

  bool has(TokenId id) const { return id >= 0 && id < bytes.size(); }
  Status fill_tables(const TokenizerSpec& spec);
};

namespace {

Error bad_spec(const TokenizerSpec& spec, std::string message) {
  return {ErrorCode::bad_file, fmt::format("{}: {}", spec.name, message),
          "fetch the tokenizer's files again"};
}

// An id far beyond the number of tokens would make tables of mostly nothing.
Status check_ids(const TokenizerSpec& spec, std::size_t count) {
  for (const AddedToken& added : spec.added) {
    const auto id = static_cast<std::size_t>(added.id);
    if (added.id < 0 || added.id > kMaxTokenId ||
        id > max_plausible_id(spec.tokens.size() + spec.added.size())) {
      return bad_spec(spec, fmt::format("added token {:?} has the id {}, out of all proportion to {} tokens",
                                        added.content, added.id, spec.tokens.size()));
    }
  }
  if (count > static_cast<std::size_t>(kMaxTokenId) + 1) {
    return bad_spec(spec, fmt::format("{} tokens are more than the {} supported", count, kMaxTokenId + 1));
  }
  for (const auto& [field, id] : {std::pair{"bos", spec.bos}, {"eos", spec.eos}, {"unk", spec.unk}}) {
    if (id < -1 || id >= static_cast<TokenId>(count)) {
      return bad_spec(spec, fmt::format("{} token id {} is not in the vocabulary of {}", field, id, count));
    }
  }
  return {};
}

Status check_merges(const TokenizerSpec& spec) {
  const auto is_token = [&](TokenId id) {
    return id >= 0 && static_cast<std::size_t>(id) < spec.tokens.size() &&
           !spec.tokens[static_cast<std::size_t>(id)].empty();
  };
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto [left, right, result] = spec.merges[rank];
    if (!is_token(left) || !is_token(right) || !is_token(result)) {
      return bad_spec(spec, fmt::format("merge {} ({} + {} = {}) names an id that is no token", rank, left,
                                        right, result));
    }
  }
  return {};
}

}  // namespace

Status Tokenizer::Impl::fill_tables(const TokenizerSpec& spec) {
  std::size_t count = spec.tokens.size();
  for (const AddedToken& added : spec.added) count = std::max(count, static_cast<std::size_t>(added.id + 1));
  std::vector<const AddedToken*> added_at(count);
  for (const AddedToken& added : spec.added) {
    const auto id = static_cast<std::size_t>(added.id);
    if (added.content.empty()) return bad_spec(spec, fmt::format("added token {} has no text", added.id));
    const std::string_view other = added_at[id] != nullptr   ? std::string_view(added_at[id]->content)
                                   : id < spec.tokens.size() ? std::string_view(spec.tokens[id])
                                                             : std::string_view();
    if (!other.empty() && other != added.content) {
      return bad_spec(spec, fmt::format("id {} is both {:?} and {:?}", added.id, other, added.content));
    }
    added_at[id] = &added;
  }
  byte_tokens.fill(-1);
  special.resize(count);
  in_vocabulary.resize(count);
  bytes.reserve(count);
  for (std::size_t id = 0; id < count; ++id) {
    const std::size_t begin = bytes.blob().size();
    if (added_at[id] != nullptr) {
      bytes.blob().append(added_at[id]->content);
      special[id] = added_at[id]->special;
    }
    if (id < spec.tokens.size()) {
      // A vocabulary entry may be an added token as well; its text is the added token's.
      std::string& blob = bytes.blob();
      const std::size_t size = blob.size();
      const bool is_bytes = append_token_bytes(spec.tokens[id], blob);
      in_vocabulary[id] = is_bytes && !spec.tokens[id].empty();
      if (is_bytes && blob.size() - size == 1) {
        byte_tokens[static_cast<unsigned char>(blob[size])] = static_cast<TokenId>(id);
      }
      if (size > begin) blob.resize(size);
    }
    bytes.close();
    if (bytes.blob().size() > UINT32_MAX) return bad_spec(spec, "the tokens are longer than 4 GiB together");
  }
  bytes.build_index();
  return {};
}

Result<Tokenizer> Tokenizer::create(TokenizerSpec spec) {
  std::size_t count = spec.tokens.size();
  for (const AddedToken& added : spec.added) {
    if (added.id >= 0) count = std::max(count, static_cast<std::size_t>(added.id) + 1);
  }
  SNUG_TRY(check_ids(spec, count));
  SNUG_TRY(check_merges(spec));
  auto impl = std::make_unique<Impl>();
  SNUG_TRY(impl->fill_tables(spec));
  spec.tokens = {};  // before the merges' table is made: less memory at the peak
  impl->merges = MergeTable(spec.merges);
  SNUG_ASSIGN(impl->pretokenizer, Pretokenizer::create(spec.split_patterns, spec.name));
  for (AddedToken& added : spec.added) {
    if (added.normalized && spec.nfc && utf8_is_valid(added.content)) added.content = to_nfc(added.content);
    (added.normalized ? impl->added_normalized : impl->added_raw).add(added);
  }
  impl->nfc = spec.nfc;
  impl->add_prefix_space = spec.add_prefix_space;
  impl->ignore_merges = spec.ignore_merges;
  impl->add_bos = spec.add_bos && spec.bos >= 0;
  impl->add_eos = spec.add_eos && spec.eos >= 0;
  impl->bos = spec.bos;
  impl->eos = spec.eos;
  impl->unk = spec.unk;
  return Tokenizer(std::move(impl));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

namespace {

// One call of encode: each function hands its pieces down to the next.
class Encoder {
 public:
  Encoder(const Tokenizer::Impl& impl, bool parse_special, std::vector<TokenId>& out)
      : impl_(impl), parse_special_(parse_special), out_(out) {}

  void text(std::string_view text) {
    if (impl_.added_raw.empty()) return normalize(text);
    std::vector<AddedTokenMatcher::Part> parts;
    impl_.added_raw.split(text, !parse_special_, parts);
    for (const auto& part : parts) part.id >= 0 ? out_.push_back(part.id) : normalize(part.text);
  }

 private:
  void normalize(std::string_view text) {
    if (!impl_.nfc || is_plainly_nfc(text)) return normalized(text);
    normalized(to_nfc(text));
  }

  void normalized(std::string_view text) {
    if (impl_.added_normalized.empty()) return plain(text);
    std::vector<AddedTokenMatcher::Part> parts;
    impl_.added_normalized.split(text, !parse_special_, parts);
    for (const auto& part : parts) part.id >= 0 ? out_.push_back(part.id) : plain(part.text);
  }

  void plain(std::string_view text) {
    if (!impl_.add_prefix_space || text.starts_with(' ')) return words(text);
    std::string prefixed(1, ' ');
    prefixed.append(text);
    words(prefixed);
  }

  void words(std::string_view text) {
    pieces_.clear();
    impl_.pretokenizer.split(text, pieces_);
    for (const std::string_view piece : pieces_) word(piece);
  }

  void word(std::string_view bytes) {
    if (impl_.ignore_merges) {
      const TokenId id = impl_.bytes.find(bytes);
      if (id >= 0 && impl_.in_vocabulary[static_cast<std::size_t>(id)]) return out_.push_back(id);
    }
    scratch_.ids.clear();
    for (const char c : bytes) {
      const TokenId id = impl_.byte_tokens[static_cast<unsigned char>(c)];
      if (id >= 0) {
        scratch_.ids.push_back(id);
      } else if (impl_.unk >= 0) {
        scratch_.ids.push_back(impl_.unk);
      }
    }
    bpe_merge(impl_.merges, scratch_);
    out_.insert(out_.end(), scratch_.ids.begin(), scratch_.ids.end());
  }

  const Tokenizer::Impl& impl_;
  const bool parse_special_;
  std::vector<TokenId>& out_;
  std::vector<std::string_view> pieces_;
  BpeScratch scratch_;
};

}  // namespace

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<TokenId> ids;
  std::string replaced;
  if (!utf8_is_valid(text)) {
    utf8_append_replaced(text, true, replaced);
    text = replaced;
  }
  if (options.add_special && impl_->add_bos) ids.push_back(impl_->bos);
  Encoder(*impl_, options.parse_special, ids).text(text);
  if (options.add_special && impl_->add_eos) ids.push_back(impl_->eos);
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (skip_special && is_special(id)) continue;
    bytes.append(token_bytes(id));
  }
  if (utf8_is_valid(bytes)) return bytes;
  std::string text;
  utf8_append_replaced(bytes, true, text);
  return text;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  return impl_->has(id) ? impl_->bytes.at(id) : std::string_view();
}

bool Tokenizer::is_special(TokenId id) const {
  return impl_->has(id) && impl_->special[static_cast<std::size_t>(id)];
}

TokenId Tokenizer::id_of(std::string_view token_text) const {
  std::string bytes;
  append_token_bytes(token_text, bytes);
  const TokenId as_bytes = impl_->bytes.find(bytes);
  return as_bytes >= 0 ? as_bytes : impl_->bytes.find(token_text);
}

int Tokenizer::vocab_size() const {
  return impl_->bytes.size();
}
TokenId Tokenizer::bos() const {
  return impl_->bos;
}
TokenId Tokenizer::eos() const {
  return impl_->eos;
}

}  // namespace snug::text
