// tokenizer.json → specification → tokenizer → a little text.
#include <cstdint>
#include <string_view>
#include <utility>

#include "formats/tokenizer_file.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto spec = snug::formats::parse_tokenizer_json(text, "tokenizer.json");
  if (!spec.ok()) return 0;
  const auto tokenizer = snug::text::Tokenizer::create(std::move(spec).value());
  if (!tokenizer.ok()) return 0;
  const auto ids = tokenizer->encode("Hello, w\u00f6rld 123!\n\n  <|im_end|> it's e\u0301\xFF");
  tokenizer->decode(ids, false);
  tokenizer->decode(ids, true);
  return 0;
}
