#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace snug::text {
namespace {

// Printable Latin-1 stands for itself.
constexpr bool is_own_character(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

// The other 68 bytes take U+0100 onward, in order.
constexpr int kFirstExtra = 0x100;
constexpr int kExtraCount = 68;

struct Alphabet {
  std::array<char16_t, 256> character{};
  std::array<short, kFirstExtra + kExtraCount> byte{};  // -1: not a byte-level character
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte) byte = -1;
  int next = kFirstExtra;
  for (int byte = 0; byte < 256; ++byte) {
    const int character = is_own_character(byte) ? byte : next++;
    alphabet.character[static_cast<std::size_t>(byte)] = static_cast<char16_t>(character);
    alphabet.byte[static_cast<std::size_t>(character)] = static_cast<short>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

bool append_token_bytes(std::string_view token, std::string& out) {
  const std::size_t before = out.size();
  for (std::size_t i = 0; i < token.size();) {
    const Utf8Step step = utf8_step(token.substr(i));
    std::size_t size = step.size;
    const char32_t character = step.kind == Utf8Step::valid ? utf8_decode(token.substr(i), size) : 0;
    if (character >= kAlphabet.byte.size() || kAlphabet.byte[character] < 0) {
      out.resize(before);
      out.append(token);
      return false;
    }
    out.push_back(static_cast<char>(kAlphabet.byte[character]));
    i += size;
  }
  return true;
}

std::string to_byte_level(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) utf8_append(kAlphabet.character[static_cast<unsigned char>(c)], out);
  return out;
}

}  // namespace snug::text
