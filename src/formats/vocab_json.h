// Reads tokenizer.json and vocab.json in one pass: the large tables straight into a BpeVocab, the rest as
// JSON.
#pragma once

#include <string_view>

#include "base/json.h"
#include "formats/bpe_vocab.h"

namespace snug::formats {

enum class VocabLayout {
  tokenizer_json,  // {"model": {"vocab": {TEXT: ID}, "merges": [["a","b"] or "a b"]}, …}
  vocab_json,      // {TEXT: ID}
};

// Returns everything but model.vocab and model.merges. bad_file for broken JSON, nesting deeper than
// kMaxJsonDepth, and ids or merges of a wrong type.
Result<Json> read_vocab_json(std::string_view text, std::string_view name, VocabLayout layout,
                             BpeVocab& vocab);

}  // namespace snug::formats
