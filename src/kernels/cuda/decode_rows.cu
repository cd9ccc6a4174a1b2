#include "kernels/cuda/decode_launch.cuh"

namespace snug::kernels::cuda {

SNUG_DECODE_LAUNCH(RowsRing, 64);
SNUG_DECODE_LAUNCH(RowsRing, 128);

}  // namespace snug::kernels::cuda
