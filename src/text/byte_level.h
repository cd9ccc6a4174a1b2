// GPT-2's byte-level characters: every byte has a printable character of its own, and vocabulary files write
// tokens in these. Source: https://github.com/openai/gpt-2/blob/master/src/encoder.py (bytes_to_unicode)
#pragma once

#include <string>
#include <string_view>

namespace snug::text {

// Appends the bytes that `token` (UTF-8) stands for. If some character is not a byte-level one, the token is
// literal text: it is appended as it is and false is returned.
bool append_token_bytes(std::string_view token, std::string& out);

// The opposite: bytes in byte-level characters.
std::string to_byte_level(std::string_view bytes);

}  // namespace snug::text
