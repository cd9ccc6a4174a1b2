#include <gmock/gmock.h>

#include "formats/tokenizer_file.h"

namespace snug::formats {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Gguf small_gguf() {
  Gguf gguf;
  gguf.name = "small.gguf";
  using Strings = std::vector<std::string_view>;
  using Types = std::vector<std::int64_t>;
  gguf.metadata["general.architecture"] = std::string_view("llama");
  gguf.metadata["tokenizer.ggml.model"] = std::string_view("gpt2");
  gguf.metadata["tokenizer.ggml.pre"] = std::string_view("smollm");
  gguf.metadata["tokenizer.ggml.tokens"] =
      Strings{"<|end|>", "1", "2", "12", "Ġ", "a", "Ġa", "<think>", "[unused]", "Ã", "©", "Ã©"};
  gguf.metadata["tokenizer.ggml.token_type"] = Types{3, 1, 1, 1, 1, 1, 1, 4, 5, 1, 1, 1};
  gguf.metadata["tokenizer.ggml.merges"] = Strings{"1 2", "Ġ a", "Ã ©"};
  gguf.metadata["tokenizer.ggml.eos_token_id"] = std::uint64_t{0};
  gguf.metadata["tokenizer.chat_template"] = std::string_view("{{ x }}");
  return gguf;
}

std::vector<text::TokenId> encode(const Gguf& gguf, std::string_view text) {
  auto files = read_gguf_tokenizer(gguf);
  EXPECT_TRUE(files.ok()) << files.error().to_string();
  if (!files.ok()) return {};
  const auto tokenizer = text::Tokenizer::create(std::move(files->spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  return tokenizer.ok() ? tokenizer->encode(text) : std::vector<text::TokenId>{};
}

TEST(GgufTokenizer, ReadsWhatSmolLmCarries) {
  EXPECT_THAT(encode(small_gguf(), "12 a<|end|><think>[unused]a"), ElementsAre(1, 2, 6, 0, 7, 5));
  const auto files = read_gguf_tokenizer(small_gguf());
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(files->chat_template, "{{ x }}");
  EXPECT_THAT(files->chat_template_name, HasSubstr("small.gguf"));
  EXPECT_EQ(files->eos_token, "<|end|>");
  EXPECT_EQ(files->bos_token, "");
  EXPECT_FALSE(files->spec.add_bos);
  ASSERT_EQ(files->spec.added.size(), 2u);
  EXPECT_TRUE(files->spec.added[0].special);
  EXPECT_FALSE(files->spec.added[1].special);
}

// B19: an unknown or absent name falls back to the architecture's pre-tokeniser.
TEST(GgufTokenizer, FallsBackByArchitecture) {
  for (const bool absent : {false, true}) {
    Gguf gguf = small_gguf();
    gguf.metadata["tokenizer.ggml.pre"] = std::string_view("my-fine-tune");
    if (absent) gguf.metadata.erase("tokenizer.ggml.pre");
    EXPECT_THAT(encode(gguf, "12"), ElementsAre(3));  // gpt-2 keeps digits together
    gguf.metadata["general.architecture"] = std::string_view("qwen2");
    EXPECT_THAT(encode(gguf, "12"), ElementsAre(1, 2));
    const auto files = read_gguf_tokenizer(gguf);
    ASSERT_TRUE(files.ok());
    EXPECT_TRUE(files->spec.nfc);
  }
}

TEST(GgufTokenizer, AddsBosWhereAsked) {
  Gguf gguf = small_gguf();
  gguf.metadata["tokenizer.ggml.bos_token_id"] = std::uint64_t{0};
  gguf.metadata["tokenizer.ggml.add_bos_token"] = true;
  EXPECT_THAT(encode(gguf, "a"), ElementsAre(0, 5));
}

TEST(GgufTokenizer, NamesTheFieldThatIsWrong) {
  const auto expect_refused = [](std::string_view key, std::optional<GgufValue> value, const char* what) {
    Gguf gguf = small_gguf();
    gguf.metadata.erase(std::string(key));
    if (value) gguf.metadata[std::string(key)] = *value;
    const auto files = read_gguf_tokenizer(gguf);
    ASSERT_FALSE(files.ok()) << key;
    EXPECT_EQ(files.error().code, ErrorCode::bad_file);
    EXPECT_THAT(files.error().message,
                AllOf(HasSubstr("small.gguf"), HasSubstr(std::string(key)), HasSubstr(what)));
  };
  expect_refused("tokenizer.ggml.model", std::string_view("llama"), "\"llama\"");
  expect_refused("tokenizer.ggml.model", std::nullopt, "gpt2");
  expect_refused("tokenizer.ggml.tokens", std::nullopt, "missing");
  expect_refused("tokenizer.ggml.merges", std::nullopt, "missing");
  expect_refused("tokenizer.ggml.merges", std::vector<std::string_view>{"12"}, "[0]");
  expect_refused("tokenizer.ggml.token_type", std::vector<std::int64_t>{1, 2}, "one for each token");
  expect_refused("tokenizer.ggml.eos_token_id", std::uint64_t{12}, "");
}

}  // namespace
}  // namespace snug::formats
