// snug eval MODEL --text F: perplexity.
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <memory>

#include "base/file.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/logits_file.h"
#include "cli/terminal.h"

namespace snug::cli {
namespace {

constexpr std::size_t kMaxTextBytes = 1ull << 30;
constexpr std::int64_t kLogitRows = 32;  // rows projected at a time: bounds logits whatever the text's length

struct EvalFlags {
  OutputFlags output;
  ModelFlags model;
  std::string text, token_ids, logits_out;
};

// -log p(target) from a row of logits, in double.
double token_nll(const float* logits, std::int64_t vocab, std::int32_t target) {
  const float largest = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (std::int64_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(logits[i] - largest));
  return std::log(sum) - static_cast<double>(logits[target] - largest);
}

Result<std::vector<std::int32_t>> id_list(const Json& json, const std::string& file) {
  std::vector<std::int32_t> ids;
  for (const auto& id : json) {
    // Ids beyond 32 bits would otherwise wrap into the vocabulary.
    if (!id.is_number_integer() || id != id.get<std::int32_t>()) {
      return Error{ErrorCode::usage, fmt::format("{}: {} is not a token id", file, id.dump()),
                   "write [[5, 6, 7]]"};
    }
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

// One or several sequences: --token-ids gives a list or a list of lists; a text is cut into windows of the
// context's length.
Result<std::vector<std::vector<std::int32_t>>> sequences(const EvalFlags& flags,
                                                         const llm::Skeleton& skeleton, std::int64_t window) {
  std::vector<std::vector<std::int32_t>> all;
  if (flags.text.empty() == flags.token_ids.empty()) {
    return Error{ErrorCode::usage, "either --text or --token-ids is needed", "give one of them"};
  }
  if (!flags.text.empty()) {
    SNUG_ASSIGN(const std::string text, read_text_file(flags.text, kMaxTextBytes));
    SNUG_ASSIGN(const auto ids, skeleton.encode(text));
    for (std::size_t at = 0; at < ids.size(); at += static_cast<std::size_t>(window)) {
      const auto end = std::min(ids.size(), at + static_cast<std::size_t>(window));
      all.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(at),
                       ids.begin() + static_cast<std::ptrdiff_t>(end));
    }
    return all;
  }
  SNUG_ASSIGN(const std::string text, read_text_file(flags.token_ids, kMaxTextBytes));
  SNUG_ASSIGN(const Json json, parse_json(text, flags.token_ids, ErrorCode::usage));
  if (!json.is_array()) {
    return Error{ErrorCode::usage,
                 fmt::format("{}: a list of ids, or a list of lists, is expected", flags.token_ids),
                 "write [[5, 6, 7]]"};
  }
  if (json.empty() || !json[0].is_array()) {
    SNUG_ASSIGN(auto ids, id_list(json, flags.token_ids));
    all.push_back(std::move(ids));
    return all;
  }
  for (const auto& list : json) {
    SNUG_ASSIGN(auto ids, id_list(list, flags.token_ids));
    all.push_back(std::move(ids));
  }
  return all;
}

Status eval(const EvalFlags& flags) {
  SNUG_ASSIGN(llm::Skeleton skeleton, flags.model.open(flags.output));
  SNUG_ASSIGN(auto options, flags.model.load_options(skeleton));
  // Texts are evaluated in windows of 2048 tokens unless the user says otherwise: comparable figures, bounded
  // memory.
  const std::int64_t window =
      flags.model.max_model_len.value_or(std::min<std::int64_t>(2048, skeleton.config.max_positions));
  SNUG_ASSIGN(const auto all, sequences(flags, skeleton, window));
  std::int64_t longest = 1;
  for (const auto& ids : all) {
    longest = std::max(longest, std::ssize(ids));
    SNUG_TRY(check_token_ids(ids, skeleton.config.vocab));
  }
  const std::int64_t vocab = skeleton.config.vocab;
  if (options.wishes.max_model_len && longest > *options.wishes.max_model_len) {
    return Error{
        ErrorCode::usage,
        fmt::format("a list of {} ids, --max-model-len allows {}", longest, *options.wishes.max_model_len),
        "split it, or allow more"};
  }
  if (!options.wishes.max_model_len) {
    if (longest > skeleton.config.max_positions) {
      return Error{ErrorCode::usage,
                   fmt::format("a list of {} ids, the model knows {} positions", longest,
                               skeleton.config.max_positions),
                   "split it"};
    }
    options.wishes.max_model_len = longest;
  }
  options.wishes.logit_rows = kLogitRows;
  ProgressBar bar("Loading", !flags.output.quiet);
  options.progress = [&](std::int64_t done, std::int64_t total) { bar.update(done, total); };
  SNUG_ASSIGN(const auto llm, llm::LLM::load(std::move(skeleton), options));
  bar.clear();

  std::optional<LogitsFile> logits_file;
  if (!flags.logits_out.empty()) {
    std::vector<std::int64_t> lengths;
    for (const auto& ids : all) lengths.push_back(std::ssize(ids));
    SNUG_ASSIGN(logits_file, LogitsFile::create(flags.logits_out, lengths, vocab));
  }
  double nll_sum = 0;
  std::int64_t tokens = 0, scored = 0;
  for (const auto& ids : all) {
    SNUG_TRY(llm->engine().evaluate(
        ids, [&](std::int64_t first, std::int64_t count, const float* logits) -> Status {
          if (logits_file) SNUG_TRY(logits_file->append(logits, count * vocab));
          for (std::int64_t i = 0; i < count && first + i + 1 < std::ssize(ids); ++i, ++scored) {
            nll_sum += token_nll(logits + i * vocab, vocab, ids[static_cast<std::size_t>(first + i + 1)]);
          }
          return {};
        }));
    tokens += std::ssize(ids);
  }
  if (logits_file) SNUG_TRY(logits_file->close());
  if (!std::isfinite(nll_sum)) {
    return Error{ErrorCode::failed, "non-finite logits: the model gives no probabilities for this text",
                 "check the checkpoint, or try --dtype float32"};
  }
  const double perplexity = scored > 0 ? std::exp(nll_sum / static_cast<double>(scored)) : 1.0;
  if (flags.output.json) {
    const Json out = {{"tokens", tokens},
                      {"scored", scored},
                      {"nll_sum", nll_sum},
                      {"perplexity", perplexity},
                      {"memory", memory_report(*llm)}};
    std::cout << json_line(out) << std::endl;
  } else {
    std::cout << fmt::format("{} tokens, perplexity {:.4f} (nll {:.4f})\n", tokens, perplexity, nll_sum);
  }
  return {};
}

}  // namespace

Command eval_command() {
  return {"eval", "Perplexity of a text", [](CLI::App& app) -> Runner {
            auto flags = std::make_shared<EvalFlags>();
            flags->model.add(app);
            app.add_option("--text", flags->text, "a text file")->type_name("FILE");
            app.add_option("--token-ids", flags->token_ids, "JSON file: a list of ids, or a list of lists")
                ->type_name("FILE");
            app.add_option("--logits-out", flags->logits_out, "write all logits to a safetensors file")
                ->type_name("FILE");
            flags->output.add(app);
            return [flags] { return eval(*flags); };
          }};
}

}  // namespace snug::cli
