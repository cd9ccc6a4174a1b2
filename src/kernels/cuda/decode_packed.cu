#include "kernels/cuda/decode_launch.cuh"

namespace snug::kernels::cuda {

SNUG_DECODE_LAUNCH(PackedRing, 64);
SNUG_DECODE_LAUNCH(PackedRing, 128);

}  // namespace snug::kernels::cuda
