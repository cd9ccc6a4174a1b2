#include "model/weight_specs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

namespace snug::model {

std::vector<WeightSpec> weight_specs(const Config& c) {
  std::vector<WeightSpec> specs;
  specs.push_back(
      {Role::embedding, -1, "model.embed_tokens.weight", "token_embd.weight", {c.vocab, c.hidden}});
  for (int i = 0; i < c.layers; ++i) {
    const auto add = [&](Role role, const char* hf, const char* gguf, std::vector<std::int64_t> shape) {
      specs.push_back({role, i, fmt::format("model.layers.{}.{}", i, hf), fmt::format("blk.{}.{}", i, gguf),
                       std::move(shape)});
    };
    add(Role::input_norm, "input_layernorm.weight", "attn_norm.weight", {c.hidden});
    add(Role::q, "self_attn.q_proj.weight", "attn_q.weight", {c.q_dim(), c.hidden});
    add(Role::k, "self_attn.k_proj.weight", "attn_k.weight", {c.kv_dim(), c.hidden});
    add(Role::v, "self_attn.v_proj.weight", "attn_v.weight", {c.kv_dim(), c.hidden});
    if (c.qkv_bias) {
      add(Role::q_bias, "self_attn.q_proj.bias", "attn_q.bias", {c.q_dim()});
      add(Role::k_bias, "self_attn.k_proj.bias", "attn_k.bias", {c.kv_dim()});
      add(Role::v_bias, "self_attn.v_proj.bias", "attn_v.bias", {c.kv_dim()});
    }
    add(Role::o, "self_attn.o_proj.weight", "attn_output.weight", {c.hidden, c.q_dim()});
    add(Role::post_norm, "post_attention_layernorm.weight", "ffn_norm.weight", {c.hidden});
    add(Role::gate, "mlp.gate_proj.weight", "ffn_gate.weight", {c.intermediate, c.hidden});
    add(Role::up, "mlp.up_proj.weight", "ffn_up.weight", {c.intermediate, c.hidden});
    add(Role::down, "mlp.down_proj.weight", "ffn_down.weight", {c.hidden, c.intermediate});
  }
  specs.push_back({Role::final_norm, -1, "model.norm.weight", "output_norm.weight", {c.hidden}});
  if (!c.tied) specs.push_back({Role::lm_head, -1, "lm_head.weight", "output.weight", {c.vocab, c.hidden}});
  return specs;
}

namespace {

// Old checkpoints carry buffers that are computed here; a tied one may carry its head once more.
bool may_be_left_over(const std::string& name, const Config& config) {
  if (config.tied && (name == "lm_head.weight" || name == "output.weight")) return true;
  return name.ends_with(".rotary_emb.inv_freq") || name == "rope_freqs.weight";
}

}  // namespace

Result<std::vector<BoundWeight>> bind_weights(const Config& config, const formats::Checkpoint& checkpoint) {
  const bool gguf = checkpoint.kind == formats::Checkpoint::Kind::gguf;
  const auto& tensors = checkpoint.weights.tensors;
  const std::string where = checkpoint.path.string();
  std::vector<BoundWeight> bound;
  std::set<std::string> used;
  for (auto& spec : weight_specs(config)) {
    const std::string& name = gguf ? spec.gguf_name : spec.hf_name;
    const auto it = tensors.find(name);
    if (it == tensors.end()) {
      return Error{ErrorCode::bad_file, fmt::format("{}: tensor {} is missing", where, name),
                   "fetch the checkpoint again, whole"};
    }
    const auto& tensor = it->second;
    if (tensor.shape != spec.shape) {
      return Error{ErrorCode::bad_file,
                   fmt::format("{}: tensor {} has shape ({}), but the configuration asks for ({})", where,
                               name, fmt::join(tensor.shape, ", "), fmt::join(spec.shape, ", ")),
                   "the weights and config.json are not of the same model: fetch both again"};
    }
    if (!spec.is_matrix() && quant::info(tensor.format).block_elems != 1) {
      return Error{ErrorCode::bad_file,
                   fmt::format("{}: tensor {} is {}, but norms and biases must be f32, f16 or bf16", where,
                               name, quant::info(tensor.format).name),
                   "convert the checkpoint again"};
    }
    used.insert(name);
    bound.push_back({std::move(spec), tensor});
  }
  for (const auto& [name, tensor] : tensors) {
    if (used.contains(name) || may_be_left_over(name, config)) continue;
    return Error{
        ErrorCode::bad_file, fmt::format("{}: tensor {} has no place in this model", where, name),
        fmt::format("check that config.json ({} layers, tie_word_embeddings {}) belongs to these weights",
                    config.layers, config.tied)};
  }
  return bound;
}

}  // namespace snug::model
