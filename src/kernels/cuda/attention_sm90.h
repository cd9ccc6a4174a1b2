// Prefill attention with Hopper's own instructions: asynchronous warpgroup products (wgmma) on tiles that the
// tensor copy engine (TMA) brings, softmax of one warpgroup under the products of the other. After
// FlashAttention-3, arXiv:2407.08608. Other GPUs, and shapes it does not take, go the generic way.
#pragma once

#include "kernels/attention.h"

namespace snug::kernels::cuda {

// bfloat16, head dimension 64 or 128, pages of 8 to 128 tokens (a power of two), rows of q aligned to 16
// bytes, compute capability 9.0.
bool prefill_sm90_supports(const AttentionParams& p);
// The sequences of more than one query token; the others are skipped. A row's result depends only on its own
// query, position and KV, bit for bit.
void prefill_sm90(const AttentionParams& p);

}  // namespace snug::kernels::cuda
