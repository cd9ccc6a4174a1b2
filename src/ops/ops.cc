#include "ops/ops.h"

#include <stdexcept>
#include <string>

namespace snug::ops {
namespace {

void check(bool good, const char* op, const char* what) {
  if (!good) throw std::logic_error(std::string(op) + ": " + what);
}

void check_sequences(std::span<const kv::SequenceView> sequences, const kv::PagedLayer& pages,
                     const char* op) {
  check(pages.k != nullptr && pages.v != nullptr && pages.block_size > 0, op, "the KV pages are not set");
  for (const auto& s : sequences) {
    check(s.q_begin >= 0 && s.q_len > 0 && s.kv_len >= s.q_len && s.page_table != nullptr, op,
          "a sequence has more queries than keys, or no pages");
  }
}

}  // namespace

void embedding(const kernels::EmbeddingParams& p) {
  check(p.tokens >= 0 && p.table.data != nullptr, "embedding", "no table");
  for (std::int64_t t = 0; t < p.tokens; ++t) {
    check(p.ids[t] >= 0 && p.ids[t] < p.table.rows, "embedding", "a token id is outside the table");
  }
  p.stream.backend == Backend::ref ? kernels::ref::embedding(p) : kernels::cpu::embedding(p);
}

void rms_norm(const kernels::RmsNormParams& p) {
  check(p.tokens >= 0 && p.hidden > 0 && p.eps > 0, "rms_norm", "bad sizes");
  p.stream.backend == Backend::ref ? kernels::ref::rms_norm(p) : kernels::cpu::rms_norm(p);
}

void linear(const kernels::LinearParams& p) {
  check(!p.outputs.empty(), "linear", "no outputs");
  const std::int64_t cols = p.outputs.front().weight.cols;
  check(p.x_stride >= cols, "linear", "x is narrower than the weight");
  for (const auto& out : p.outputs) {
    check(out.weight.cols == cols, "linear", "weights that share x differ in their inputs");
    check(out.weight.data != nullptr && out.y_stride >= out.weight.rows, "linear",
          "y is narrower than the weight");
  }
  p.stream.backend == Backend::ref ? kernels::ref::linear(p) : kernels::cpu::linear(p);
}

void rope_store(const kernels::RopeStoreParams& p) {
  check(p.kv.head_dim > 0 && p.kv.head_dim % 2 == 0, "rope", "head_dim must be even");
  check_sequences(p.sequences, p.kv, "rope");
  p.stream.backend == Backend::ref ? kernels::ref::rope_store(p) : kernels::cpu::rope_store(p);
}

void attention(const kernels::AttentionParams& p) {
  check(p.kv.kv_heads > 0 && p.heads % p.kv.kv_heads == 0, "attention",
        "heads must be a multiple of kv_heads");
  check_sequences(p.sequences, p.kv, "attention");
  p.stream.backend == Backend::ref ? kernels::ref::attention(p) : kernels::cpu::attention(p);
}

void swiglu(const kernels::SwigluParams& p) {
  check(p.stride >= p.intermediate && p.y_stride >= p.intermediate, "swiglu", "a stride is too small");
  p.stream.backend == Backend::ref ? kernels::ref::swiglu(p) : kernels::cpu::swiglu(p);
}

std::int64_t linear_workspace_bytes(std::int64_t tokens, std::int64_t cols, int threads) {
  return kernels::cpu::linear_workspace_bytes(tokens, cols, threads);
}

std::int64_t attention_workspace_bytes(int heads, int head_dim, int threads) {
  return kernels::cpu::attention_workspace_bytes(heads, head_dim, threads);
}

}  // namespace snug::ops
