#include "kernels/cuda/skinny_launch.cuh"

namespace snug::kernels::cuda {

template void launch_skinny<quant::Format::bf16>(const Stream&, SkinnyArgs, int);

}  // namespace snug::kernels::cuda
