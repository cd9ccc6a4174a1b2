// snug inspect MODEL: configuration, tensors, formats, tokenizer, chat template.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <map>
#include <memory>

#include "base/bytes.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/terminal.h"

namespace snug::cli {
namespace {

struct InspectFlags {
  OutputFlags output;
  ModelFlags model;
  bool tensors = false;
};

Json config_json(const model::Config& c) {
  using Type = formats::RopeConfig::Type;
  const char* rope = c.rope.type == Type::yarn ? "yarn" : c.rope.type == Type::linear ? "linear" : "default";
  return {{"model_type", c.architecture},
          {"hidden_size", c.hidden},
          {"num_hidden_layers", c.layers},
          {"num_attention_heads", c.heads},
          {"num_key_value_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"intermediate_size", c.intermediate},
          {"vocab_size", c.vocab},
          {"max_position_embeddings", c.max_positions},
          {"rms_norm_eps", c.rms_eps},
          {"tie_word_embeddings", c.tied},
          {"rope", {{"type", rope}, {"theta", c.rope.theta}, {"factor", c.rope.factor}}},
          {"sliding_window", c.sliding_window > 0 ? Json(c.sliding_window) : Json()}};
}

Status inspect(const InspectFlags& flags) {
  SNUG_ASSIGN(const llm::Skeleton skeleton, flags.model.open(flags.output));
  const model::Config& config = skeleton.config;
  std::map<std::string, std::int64_t> by_format;
  std::int64_t parameters = 0;
  for (const auto& w : skeleton.weights) {
    by_format[quant::info(w.weight.tensor.format).name] += w.weight.tensor.bytes;
    parameters += w.weight.spec.elements();
  }
  if (flags.output.json) {
    Json tensors = Json::array();
    for (const auto& w : skeleton.weights) {
      const auto& t = w.weight.tensor;
      tensors.push_back(
          {{"name", t.name}, {"shape", t.shape}, {"dtype", quant::info(t.format).name}, {"bytes", t.bytes}});
    }
    Json out = {
        {"config", config_json(config)},
        {"parameters", parameters},
        {"bytes", skeleton.weight_bytes()},
        {"formats", by_format},
        {"eos_token_ids", skeleton.eos_ids},
        {"tokenizer", skeleton.tokenizer ? Json{{"vocab_size", skeleton.tokenizer->vocab_size()}} : Json()},
        {"chat_template", skeleton.chat_template.has_value()},
        {"tensors", tensors}};
    if (skeleton.checkpoint) out["warnings"] = skeleton.checkpoint->weights.warnings;
    std::cout << json_line(out) << std::endl;
    return {};
  }
  std::cout << fmt::format("{}\n", skeleton.name)
            << fmt::format("  architecture  {}: {} layers, hidden {}, FFN {}, {} heads of {}, {} KV heads\n",
                           config.architecture, config.layers, config.hidden, config.intermediate,
                           config.heads, config.head_dim, config.kv_heads)
            << fmt::format("  vocabulary    {}{}\n", config.vocab,
                           config.tied ? ", embedding and head are one matrix" : "")
            << fmt::format("  positions     {}\n", config.max_positions)
            << fmt::format("  weights       {} tensors, {:.2f} billion parameters, {}\n",
                           skeleton.weights.size(), static_cast<double>(parameters) / 1e9,
                           format_bytes(skeleton.weight_bytes()));
  for (const auto& [format, bytes] : by_format)
    std::cout << fmt::format("    {:<11} {}\n", format, format_bytes(bytes));
  std::cout << fmt::format("  tokenizer     {}\n",
                           skeleton.tokenizer ? fmt::format("{} tokens", skeleton.tokenizer->vocab_size())
                                              : "none: only token ids can be given")
            << fmt::format("  chat template {}\n", skeleton.chat_template ? "yes" : "none")
            << fmt::format("  end tokens    {}\n", fmt::join(skeleton.eos_ids, ", "));
  if (flags.tensors) {
    for (const auto& w : skeleton.weights) {
      const auto& t = w.weight.tensor;
      std::cout << fmt::format("  {:<52} {:<18} {:<7} {}\n", t.name,
                               fmt::format("({})", fmt::join(t.shape, ", ")), quant::info(t.format).name,
                               format_bytes(t.bytes));
    }
  }
  return {};
}

}  // namespace

Command inspect_command() {
  return {"inspect", "What a model is made of", [](CLI::App& app) -> Runner {
            auto flags = std::make_shared<InspectFlags>();
            flags->model.add(app);
            app.add_flag("--tensors", flags->tensors, "list every tensor");
            flags->output.add(app);
            return [flags] { return inspect(*flags); };
          }};
}

}  // namespace snug::cli
