// What the readers of tokenizer files share.
#pragma once

#include <string_view>

#include "base/json.h"
#include "text/tokenizer.h"

namespace snug::formats {

// {"content": …, "special": …, …} of added_tokens and added_tokens_decoder; `where` begins the messages.
Result<text::AddedToken> read_added_token(const Json& value, text::TokenId id, std::string_view where);

// The id of an added token or vocabulary entry with exactly this text; -1 if there is none.
text::TokenId find_token(const text::TokenizerSpec& spec, std::string_view content);

}  // namespace snug::formats
