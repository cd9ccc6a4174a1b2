// What a mask over the next token costs: compiling, the first visit to a place, a known place, and accepting
// a token. Usage: grammar_bench VOCAB.json (a byte-level vocabulary, as Qwen2.5's vocab.json)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "grammar/grammar.h"

namespace snug::grammar {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// GPT-2's characters for bytes: printable ones stand for themselves, the others begin at 256.
std::string bytes_of(const std::string& token) {
  static const std::vector<int> table = [] {
    std::vector<int> byte_of(512, -1);
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      byte_of[static_cast<std::size_t>(itself ? byte : next++)] = byte;
    }
    return byte_of;
  }();
  std::string out;
  for (std::size_t i = 0; i < token.size(); ++i) {
    auto c = static_cast<unsigned>(static_cast<unsigned char>(token[i]));
    if (c >= 0xC0 && i + 1 < token.size())
      c = (c & 0x1F) << 6 | (static_cast<unsigned char>(token[++i]) & 0x3F);
    out.push_back(static_cast<char>(c < table.size() ? table[c] : '?'));
  }
  return out;
}

struct Statistics {
  std::vector<double> values;
  void print(const char* name) {
    std::sort(values.begin(), values.end());
    double sum = 0;
    for (const double value : values) sum += value;
    std::printf("  %-8s mean %8.2f us, median %8.2f, 99th %8.2f, most %8.2f (%zu)\n", name,
                sum / static_cast<double>(values.size()), values[values.size() / 2],
                values[values.size() * 99 / 100], values.back(), values.size());
  }
};

// The longest allowed token that continues the text, as a tokenizer would write it.
std::int32_t next_token(TokenMatcher& matcher, const std::vector<std::string>& tokens,
                        std::string_view rest) {
  std::int32_t best = -1;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].empty() || !rest.starts_with(tokens[i]) || !matcher.allows(static_cast<std::int32_t>(i)))
      continue;
    if (best < 0 || tokens[i].size() > tokens[static_cast<std::size_t>(best)].size())
      best = static_cast<std::int32_t>(i);
  }
  return best;
}

void measure(const char* name, const std::vector<std::string>& tokens, auto&& compile,
             std::string_view answer) {
  const auto vocabulary = make_vocabulary(tokens);
  auto start = Clock::now();
  Result<GrammarPtr> grammar = compile();
  if (!grammar.ok()) {
    std::printf("%s: %s\n", name, grammar.error().to_string().c_str());
    return;
  }
  std::printf("%s: compiled in %.2f ms\n", name, microseconds_since(start) / 1000);

  Statistics cold, warm, accept;
  std::vector<std::int32_t> path;
  for (int round = 0; round < 200; ++round) {
    TokenMatcher matcher(*grammar, vocabulary);
    std::size_t at = 0;
    for (std::size_t step = 0;; ++step) {
      start = Clock::now();
      (void)matcher.allowed();
      (round == 0 ? cold : warm).values.push_back(microseconds_since(start));
      if (round == 0 && at < answer.size()) {
        const auto token = next_token(matcher, tokens, answer.substr(at));
        if (token < 0) {
          std::printf("  the answer is not allowed at \"%.20s\"\n", answer.data() + at);
          return;
        }
        path.push_back(token);
        at += tokens[static_cast<std::size_t>(token)].size();
      }
      if (step == path.size()) break;
      start = Clock::now();
      matcher.accept(path[step]);
      accept.values.push_back(microseconds_since(start));
    }
  }
  cold.print("cold");
  warm.print("known");
  accept.print("accept");
}

void measure_schema(const char* name, const std::vector<std::string>& tokens, const char* schema,
                    std::string_view answer) {
  const auto parsed = OrderedJson::parse(schema);
  measure(
      name, tokens, [&] { return compile_json_schema(parsed); }, answer);
}

int run(const char* path) {
  auto text = read_text_file(path, 64 << 20);
  if (!text.ok()) {
    std::fprintf(stderr, "%s\n", text.error().to_string().c_str());
    return text.error().code == ErrorCode::bad_file ? 4 : 1;
  }
  std::vector<std::string> tokens;
  const Json ids = Json::parse(*text);
  for (const auto& [token, id] : ids.items()) {
    const auto index = id.get<std::size_t>();
    if (tokens.size() <= index) tokens.resize(index + 1);
    tokens[index] = bytes_of(token);
  }
  const auto start = Clock::now();
  (void)make_vocabulary(tokens);
  std::printf("vocabulary: %zu tokens, arranged in %.0f ms\n", tokens.size(),
              microseconds_since(start) / 1000);

  const char* person = R"({
    "type": "object",
    "properties": {
      "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
      "email": {"type": "string", "format": "email"}, "bio": {"type": "string", "maxLength": 200},
      "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 8},
      "role": {"enum": ["admin", "editor", "viewer"]},
      "address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"},
        "zip": {"type": "string", "pattern": "^\\d{5}$"}}, "required": ["street", "city"], "additionalProperties": false}
    },
    "required": ["name", "age", "bio", "tags", "role", "address"], "additionalProperties": false})";
  const char* answer =
      R"({"name": "Ada Lovelace", "age": 36, "email": "ada@example.org", "bio": "An English mathematician and writer, chiefly )"
      R"(known for her work on Charles Babbage's proposed mechanical general-purpose computer, the Analytical Engine.", )"
      R"("tags": ["mathematics", "computing", "poetry, \"poetical science\""], "role": "admin", "address": {"street": )"
      R"("12 St James's Square", "city": "London", "zip": "10115"}})";
  measure_schema("schema", tokens, person, answer);
  measure(
      "any object", tokens, [] { return compile_json_object(); }, answer);
  measure_schema(
      "array of objects", tokens,
      R"({"type":"array","items":{"type":"object","properties":{"id":{"type":"integer"},"text":{"type":"string"},"children":{"type":"array","items":{"$ref":"#/items"}}},"required":["id"]}})",
      R"([{"id": 1, "text": "one", "children": [{"id": 2, "text": "two", "children": []}, {"id": 3}]}, {"id": 4, "text": "four"}])");
  measure(
      "regex", tokens, [] { return compile_regex("[A-Z][a-z]+( [a-z]+)*[.!?]"); },
      "The quick brown fox jumps over the lazy dog.");
  measure(
      "any text", tokens, [] { return compile_regex("(.|\\n)*"); },
      "The quick brown fox 世界 jumps over the lazy dog.");
  return 0;
}

}  // namespace
}  // namespace snug::grammar

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: grammar_bench VOCAB.json\n");
    return 2;
  }
  return snug::grammar::run(argv[1]);
}
