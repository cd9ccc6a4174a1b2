#include "ops/ops.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/skinny_linear.h"

namespace snug::ops {
namespace {

void check(bool good, const char* op, const char* what) {
  if (!good) throw std::logic_error(std::string(op) + ": " + what);
}

void check_sequences(std::span<const kv::SequenceView> sequences, const kv::PagedLayer& pages,
                     Backend backend, const char* op) {
  check(pages.k != nullptr && pages.v != nullptr && pages.block_size > 0, op, "the KV pages are not set");
  for (const auto& s : sequences) {
    check(s.q_begin >= 0 && s.q_len > 0 && s.kv_len >= s.q_len &&
              (s.page_table != nullptr || backend == Backend::cuda),
          op, "a sequence has more queries than keys, or no pages");
  }
}

// Packed weights are read as they are for so many tokens, a few at a time; past that it is quicker to unpack
// them.
constexpr std::int64_t kRepeatedSkinny = 6 * kernels::cuda::kSkinnyTokens;

void linear_cuda(const kernels::LinearParams& p) {
  if (p.precision == kernels::Precision::exact) return kernels::cuda::simple_linear(p);
  const auto is_skinny = [&p](const kernels::LinearOutput& out) {
    const bool packed = out.weight.layout == kernels::Layout::packed;
    return p.tokens <= (packed ? kRepeatedSkinny : kernels::cuda::kSkinnyTokens) && !out.add &&
           out.bias == nullptr && kernels::cuda::skinny_supports(out.weight);
  };
  // All others in one call: neighbours are one product there.
  std::vector<kernels::LinearOutput> others;
  for (const auto& out : p.outputs) {
    if (!is_skinny(out)) {
      others.push_back(out);
      continue;
    }
    for (std::int64_t t = 0; t < p.tokens; t += kernels::cuda::kSkinnyTokens) {
      kernels::cuda::skinny_linear({.stream = p.stream,
                                    .tokens = std::min(kernels::cuda::kSkinnyTokens, p.tokens - t),
                                    .weight = out.weight,
                                    .x = p.x.at(t * p.x_stride),
                                    .x_stride = p.x_stride,
                                    .y = out.y.at(t * out.y_stride),
                                    .y_stride = out.y_stride});
    }
  }
  if (others.empty()) return;
  kernels::LinearParams rest = p;
  rest.outputs = others;
  kernels::cuda::linear(rest);
}

}  // namespace

void embedding(const kernels::EmbeddingParams& p) {
  check(p.tokens >= 0 && p.table.data != nullptr, "embedding", "no table");
  // On a GPU the ids are out of the host's sight; the engine has checked them.
  for (std::int64_t t = 0; t < p.tokens && p.stream.backend != Backend::cuda; ++t) {
    check(p.ids[t] >= 0 && p.ids[t] < p.table.rows, "embedding", "a token id is outside the table");
  }
  switch (p.stream.backend) {
    case Backend::ref:
      return kernels::ref::embedding(p);
    case Backend::cpu:
      return kernels::cpu::embedding(p);
    case Backend::cuda:
      return kernels::cuda::embedding(p);
  }
}

void rms_norm(const kernels::RmsNormParams& p) {
  check(p.tokens >= 0 && p.hidden > 0 && p.eps > 0, "rms_norm", "bad sizes");
  switch (p.stream.backend) {
    case Backend::ref:
      return kernels::ref::rms_norm(p);
    case Backend::cpu:
      return kernels::cpu::rms_norm(p);
    case Backend::cuda:
      return kernels::cuda::rms_norm(p);
  }
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
  switch (p.stream.backend) {
    case Backend::ref:
      return kernels::ref::linear(p);
    case Backend::cpu:
      return kernels::cpu::linear(p);
    case Backend::cuda:
      return linear_cuda(p);
  }
}

void rope_store(const kernels::RopeStoreParams& p) {
  check(p.kv.head_dim > 0 && p.kv.head_dim % 2 == 0, "rope", "head_dim must be even");
  check_sequences(p.sequences, p.kv, p.stream.backend, "rope");
  switch (p.stream.backend) {
    case Backend::ref:
      return kernels::ref::rope_store(p);
    case Backend::cpu:
      return kernels::cpu::rope_store(p);
    case Backend::cuda:
      return kernels::cuda::rope_store(p);
  }
}

void attention(const kernels::AttentionParams& p) {
  check(p.kv.kv_heads > 0 && p.heads % p.kv.kv_heads == 0, "attention",
        "heads must be a multiple of kv_heads");
  check_sequences(p.sequences, p.kv, p.stream.backend, "attention");
  switch (p.stream.backend) {
    case Backend::ref:
      return kernels::ref::attention(p);
    case Backend::cpu:
      return kernels::cpu::attention(p);
    case Backend::cuda:
      return kernels::cuda::attention(p);
  }
}

void swiglu(const kernels::SwigluParams& p) {
  check(p.stride >= p.intermediate && p.y_stride >= p.intermediate, "swiglu", "a stride is too small");
  switch (p.stream.backend) {
    case Backend::ref:
      return kernels::ref::swiglu(p);
    case Backend::cpu:
      return kernels::cpu::swiglu(p);
    case Backend::cuda:
      return kernels::cuda::swiglu(p);
  }
}

void rope_angles(const kernels::RopeAnglesParams& p) {
  check(!p.inverse_frequencies.empty() && p.inverse_frequencies.size() <= 128, "rope_angles", "bad sizes");
  p.stream.backend == Backend::cuda ? kernels::cuda::rope_angles(p) : kernels::cpu::rope_angles(p);
}

std::int64_t linear_workspace_bytes(const ScratchLimits& l) {
  if (l.backend == Backend::cuda) return kernels::cuda::linear_workspace_bytes(l.cols);
  return kernels::cpu::linear_workspace_bytes(l.tokens, l.cols, l.threads);
}

std::int64_t attention_workspace_bytes(int heads, int head_dim, const ScratchLimits& l) {
  if (l.backend == Backend::cuda)
    return kernels::cuda::attention_workspace_bytes(heads, head_dim, l.sequences);
  return kernels::cpu::attention_workspace_bytes(heads, head_dim, l.threads);
}

}  // namespace snug::ops
