#include "formats/bpe_vocab.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/bad_file.h"
#include "text/string_table.h"

namespace snug::formats {
namespace {

constexpr std::string_view kFetchAgain = "fetch the file again";

Status fill_tokens(const BpeVocab& vocab, std::string_view name, std::vector<std::string>& tokens) {
  std::size_t count = 0;
  for (const BpeVocab::Entry& entry : vocab.entries) {
    const auto id = static_cast<std::size_t>(entry.id);
    if (entry.id < 0 || entry.id > text::kMaxTokenId || id > text::max_plausible_id(vocab.entries.size())) {
      return bad_file(name,
                      fmt::format("vocab: token {:?} has the id {}, out of all proportion to {} tokens",
                                  vocab.texts.substr(entry.begin, std::min(entry.size, 60u)), entry.id,
                                  vocab.entries.size()),
                      kFetchAgain);
    }
    count = std::max(count, id + 1);
  }
  tokens.assign(count, {});
  for (const BpeVocab::Entry& entry : vocab.entries) {
    const auto text = std::string_view(vocab.texts).substr(entry.begin, entry.size);
    std::string& token = tokens[static_cast<std::size_t>(entry.id)];
    if (!token.empty() && token != text) {
      return bad_file(name, fmt::format("vocab: id {} is both {:?} and {:?}", entry.id, token, text),
                      kFetchAgain);
    }
    token = text;
  }
  return {};
}

}  // namespace

void BpeVocab::add_token(std::string_view text, text::TokenId id) {
  entries.push_back({id, static_cast<std::uint32_t>(texts.size()), static_cast<std::uint32_t>(text.size())});
  texts.append(text);
}

void BpeVocab::add_merge(std::string_view left, std::string_view right) {
  merges.push_back({static_cast<std::uint32_t>(merge_texts.size()), static_cast<std::uint32_t>(left.size()),
                    static_cast<std::uint32_t>(right.size())});
  merge_texts.append(left).append(right);
}

bool BpeVocab::add_merge_line(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == line.size()) return false;
  if (line.find(' ', space + 1) != std::string_view::npos) return false;
  add_merge(line.substr(0, space), line.substr(space + 1));
  return true;
}

Status fill_spec(BpeVocab vocab, std::string_view name, UnknownMerges unknown, text::TokenizerSpec& spec) {
  SNUG_TRY(fill_tokens(vocab, name, spec.tokens));
  vocab.texts = {};
  vocab.entries = {};
  text::StringTable ids;
  ids.reserve(spec.tokens.size());
  for (const std::string& token : spec.tokens) ids.add(token);
  ids.build_index();
  spec.merges.clear();
  spec.merges.reserve(vocab.merges.size());
  for (const BpeVocab::Merge& merge : vocab.merges) {
    const auto both = std::string_view(vocab.merge_texts).substr(merge.begin, merge.left + merge.right);
    const auto left = both.substr(0, merge.left), right = both.substr(merge.left);
    const text::TokenizerSpec::Merge found{ids.find(left), ids.find(right), ids.find(both)};
    if (found.left < 0 || found.right < 0 || found.result < 0) {
      if (unknown == UnknownMerges::skip) continue;
      const auto missing = found.left < 0 ? left : found.right < 0 ? right : both;
      return bad_file(
          name,
          fmt::format("merges: merge {} ({:?} {:?}) needs {:?}, which is not in the vocabulary",
                      spec.merges.size(), left.substr(0, 60), right.substr(0, 60), missing.substr(0, 60)),
          "fetch vocabulary and merges of one and the same model");
    }
    spec.merges.push_back(found);
  }
  return {};
}

Status read_merges_text(std::string_view text, std::string_view name, BpeVocab& vocab) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    if (!vocab.add_merge_line(line)) {
      return bad_file(name, fmt::format("line {} must be two tokens with a space between", number),
                      kFetchAgain);
    }
  }
  return {};
}

}  // namespace snug::formats
