#include "kernels/attention.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>
#include <string>

#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/attention_sm90.h"

namespace snug::kernels::cuda {
namespace {

std::int64_t rounded(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

void refuse(const std::string& what) {
  throw std::runtime_error("attention: " + what);
}

void check_call(const AttentionParams& p) {
  const kv::PagedLayer& kv = p.kv;
  if (p.q.dtype != kv.dtype || p.out.dtype != kv.dtype) {
    refuse("q, out and KV must have one element type, not " + std::string(name_of(p.q.dtype)) + ", " +
           name_of(p.out.dtype) + " and " + name_of(kv.dtype));
  }
  if (kv.dtype == DType::f16) refuse("there is no float16 on CUDA, only bfloat16 and float32");
  if (kv.kv_heads <= 0 || p.heads <= 0 || p.heads % kv.kv_heads != 0) {
    refuse(std::to_string(p.heads) + " heads cannot share " + std::to_string(kv.kv_heads) + " KV heads");
  }
  if (kv.head_dim <= 0 || kv.head_dim > 256 || kv.block_size <= 0) {
    refuse("head dimension " + std::to_string(kv.head_dim) + ", block size " + std::to_string(kv.block_size));
  }
}

// What the tensor-core kernels take.
bool is_tiled(const AttentionParams& p, const AttentionCall& call) {
  return p.kv.dtype == DType::bf16 && (call.head_dim == 64 || call.head_dim == 128) &&
         call.block_size % kTileKeys == 0 && call.q_stride % 2 == 0;
}

}  // namespace

AttentionCall make_call(const AttentionParams& p) {
  AttentionCall call;
  call.q = p.q.data;
  call.out = p.out.data;
  call.k = p.kv.k;
  call.v = p.kv.v;
  call.sequences = p.device;
  call.sequence_count = static_cast<int>(p.sequences.size());
  call.heads = p.heads;
  call.kv_heads = p.kv.kv_heads;
  call.group = p.heads / p.kv.kv_heads;
  call.head_dim = p.kv.head_dim;
  call.block_size = p.kv.block_size;
  call.window =
      static_cast<int>(std::clamp<std::int64_t>(p.window, 0, std::numeric_limits<std::int32_t>::max()));
  call.scale_log2 = p.scale * kLog2E;
  call.q_stride = p.q_stride != 0 ? p.q_stride : static_cast<std::int64_t>(p.heads) * p.kv.head_dim;
  call.max_splits = max_splits(p.heads);
  call.arrivals = p.arrivals;
  call.split_stats = reinterpret_cast<float2*>(p.workspace);
  call.split_sums = reinterpret_cast<float*>(
      p.workspace + split_stats_bytes(p.heads, static_cast<std::int64_t>(p.sequences.size())));
  return call;
}

std::int64_t attention_workspace_bytes(int heads, int head_dim, std::int64_t sequences) {
  return split_stats_bytes(heads, sequences) +
         rounded(sequences * heads * max_splits(heads) * head_dim * static_cast<std::int64_t>(sizeof(float)));
}

void attention(const AttentionParams& p) {
  if (p.sequences.empty()) return;
  check_call(p);
  const auto has = [&p](auto&& test) { return std::any_of(p.sequences.begin(), p.sequences.end(), test); };
  const bool longer = has([](const kv::SequenceView& s) { return s.q_len > 1; });
  const bool single = has([](const kv::SequenceView& s) { return s.q_len == 1; });
  const AttentionCall call = make_call(p);
  const bool tiled = is_tiled(p, call);
  if (longer) {
    if (p.stream.gpu->arch >= 90 && prefill_sm90_supports(p)) {
      prefill_sm90(p);
    } else if (tiled) {
      prefill_bf16(p, call);
    } else {
      prefill_any(p, call);
    }
  }
  // Without a longer sequence the launches must not depend on what the host's views say: a captured step is
  // replayed for other sequences.
  if (longer && !single) return;
  if (p.workspace == nullptr ||
      p.workspace_bytes < attention_workspace_bytes(p.heads, p.kv.head_dim, call.sequence_count)) {
    refuse("a workspace of " + std::to_string(p.workspace_bytes) + " bytes is too small for " +
           std::to_string(call.sequence_count) + " sequences");
  }
  if (p.arrivals == nullptr) refuse("arrivals are missing");
  if (tiled) {
    decode_bf16(p, call);
  } else {
    decode_any(p, call);
  }
}

}  // namespace snug::kernels::cuda
