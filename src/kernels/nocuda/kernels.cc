// A build without CUDA: the kernels of the CUDA back end, none of which can be reached without a GPU.
#include <stdexcept>

#include "kernels/attention.h"
#include "kernels/ceiling.h"
#include "kernels/decode_layers.h"
#include "kernels/elementwise.h"
#include "kernels/likely.h"
#include "kernels/linear.h"
#include "kernels/sample.h"
#include "kernels/skinny_linear.h"

namespace snug::kernels::cuda {
namespace {

[[noreturn]] void absent() {
  throw std::logic_error("this build of snug has no CUDA back end");
}

}  // namespace

std::int64_t attention_workspace_bytes(int, int, std::int64_t) {
  absent();
}
void attention(const AttentionParams&) {
  absent();
}
void rms_norm(const RmsNormParams&) {
  absent();
}
void rope_store(const RopeStoreParams&) {
  absent();
}
void rope_angles(const RopeAnglesParams&) {
  absent();
}
void swiglu(const SwigluParams&) {
  absent();
}
void settle(const SettleParams&) {
  absent();
}
Target target_of(quant::Format, std::int64_t, std::int64_t, bool) {
  absent();
}
bool is_behind(const WeightView&, const WeightView&) {
  absent();
}
std::vector<WeightView> merged(std::span<const WeightView>) {
  absent();
}
void pack_rows(const Stream&, const WeightView&, const WeightView&, std::int64_t) {
  absent();
}
void unpack_rows(const Stream&, const WeightView&, std::int64_t, std::int64_t, void*) {
  absent();
}
std::int64_t linear_workspace_bytes(std::int64_t) {
  absent();
}
std::vector<std::int64_t> linear_token_counts(std::int64_t) {
  absent();
}
void linear(const LinearParams&) {
  absent();
}
void simple_linear(const LinearParams&) {
  absent();
}
void embedding(const EmbeddingParams&) {
  absent();
}
bool skinny_supports(const WeightView&) {
  absent();
}
void skinny_linear(const SkinnyLinearParams&) {
  absent();
}
std::int64_t sample_workspace_bytes(std::int64_t, std::int64_t) {
  absent();
}
void sample(const SampleParams&) {
  absent();
}

double measure_read_gbps(const Stream&, const std::byte*, std::int64_t) {
  absent();
}

bool decode_layers_supports(const Stream&, const DecodeModel&) {
  absent();
}
void decode_layers(const DecodeLayersParams&) {
  absent();
}

std::int64_t likely_workspace_bytes(std::int64_t) {
  absent();
}
void likely(const LikelyParams&) {
  absent();
}

}  // namespace snug::kernels::cuda
