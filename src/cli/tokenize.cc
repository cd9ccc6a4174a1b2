// snug tokenize MODEL: JSON lines in, JSON lines out.
#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <string>

#include "base/json.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "llm/skeleton.h"

namespace snug::cli {
namespace {

struct TokenizeFlags {
  OutputFlags output;
  std::string model;
  bool no_special = false;
  bool skip_special = false;
};

Result<OrderedJson> convert(const OrderedJson& in, const llm::Skeleton& skeleton, const TokenizeFlags& flags,
                            const std::string& where) {
  const auto encode = [&](const std::string& text) {
    return skeleton.tokenizer->encode(text,
                                      {.parse_special = !flags.no_special, .add_special = !flags.no_special});
  };
  if (in.is_object() && in.contains("text") && in["text"].is_string()) {
    return OrderedJson{{"ids", encode(in["text"].get<std::string>())}};
  }
  if (in.is_object() && in.contains("ids") && in["ids"].is_array()) {
    std::vector<std::int32_t> ids;
    for (const auto& id : in["ids"]) {
      if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
          id.get<std::int64_t>() >= skeleton.tokenizer->vocab_size()) {
        return Error{ErrorCode::usage,
                     fmt::format("{}: {} is not a token id below {}", where, id.dump(),
                                 skeleton.tokenizer->vocab_size()),
                     ""};
      }
      ids.push_back(id.get<std::int32_t>());
    }
    return OrderedJson{{"text", skeleton.tokenizer->decode(ids, flags.skip_special)}};
  }
  if (in.is_object() && in.contains("messages")) {
    SNUG_ASSIGN(
        const std::string text,
        skeleton.render_chat(in["messages"], in.value("tools", OrderedJson()),
                             in.value("add_generation_prompt", OrderedJson(false)) == OrderedJson(true)));
    return OrderedJson{{"text", text}, {"ids", encode(text)}};
  }
  return Error{ErrorCode::usage, fmt::format("{}: an object with text, ids or messages is expected", where),
               "write {\"text\": \"Hello\"}"};
}

Result<OrderedJson> convert_line(const std::string& line, const std::string& where,
                                 const llm::Skeleton& skeleton, const TokenizeFlags& flags) {
  SNUG_ASSIGN(const OrderedJson in, parse_ordered_json(line, where, ErrorCode::usage));
  return convert(in, skeleton, flags, where);
}

Status tokenize(const TokenizeFlags& flags) {
  ModelFlags model;
  model.model = flags.model;
  SNUG_ASSIGN(const std::string path, model.resolve());
  SNUG_ASSIGN(const llm::Skeleton skeleton, llm::open_tokenizer(path));
  if (!skeleton.tokenizer) return skeleton.encode("").error();
  // A bad line gets an error line in its place, so that answers stay beside their questions; the exit code
  // tells.
  Status status;
  int number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto out = convert_line(line, fmt::format("line {}", number), skeleton, flags);
    std::cout << (out ? json_line(*out) : json_line(error_json(out.error()))) << '\n';
    if (!out && status) status = out.error();
  }
  std::cout.flush();
  return status;
}

}  // namespace

Command tokenize_command() {
  return {"tokenize", "Text to token ids and back, as JSON lines", [](CLI::App& app) -> Runner {
            auto flags = std::make_shared<TokenizeFlags>();
            app.add_option("MODEL", flags->model, "model, or a folder with only tokenizer files")->required();
            app.add_flag("--no-special", flags->no_special,
                         "text such as <|im_end|> is plain text; add no bos or eos");
            app.add_flag("--skip-special", flags->skip_special, "leave special tokens out of decoded text");
            flags->output.add(app);
            return [flags] { return tokenize(*flags); };
          }};
}

}  // namespace snug::cli
