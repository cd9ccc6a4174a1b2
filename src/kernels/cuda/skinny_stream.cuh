// How a warp gets its weights: groups of units on their way while others are multiplied.
#pragma once

#include "kernels/cuda/skinny_args.cuh"
#include "kernels/cuda/skinny_unit.cuh"

namespace snug::kernels::cuda {

// Warps of a block, units of a group and groups of a ring. What is on its way must cover the latency of
// memory, some 40 KB for each multiprocessor, and two blocks must fit beside each other, so that the next
// kernel's can get their first weights in time. Unpacking takes many dependent instructions, so many
// warps.
template <quant::Format F>
struct StreamShape {
  static constexpr int kWarps = 16;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kUnits = F == quant::Format::q8_0 || F == quant::Format::q6_k ? 2 : 4;
  static constexpr int kDepth = 4;  // at most
  static constexpr int kGroupBytes = kUnits * unit_shape(F).bytes + unit_shape(F).head_bytes;
};

__device__ __forceinline__ std::uint32_t shared_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

// Packed weights come as runs of bytes into a ring in shared memory, the warp's own.
template <quant::Format F>
class WeightStream {
  using Shape = StreamShape<F>;

 public:
  static constexpr int kBarriers = Shape::kDepth;  // at most

  // Asks for the first groups.
  __device__ __forceinline__ WeightStream(const SkinnyArgs& a, int begin, int end, std::byte* ring,
                                          std::uint64_t* barriers, int lane)
      : source_(a, begin, end), ring_(ring), barriers_(barriers), depth_(a.depth) {
    tile_ = tile_at(a, source_.place);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (lane == 0) {
      for (int i = 0; i < a.depth; ++i) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(barriers_ + i)) : "memory");
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
#endif
    for (int i = 0; i < a.depth; ++i) request(a, i, lane);
  }

  // Waits for the group at hand.
  __device__ __forceinline__ void arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    std::uint32_t done;
    do {
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(shared_address(barriers_ + at_)), "r"(parity_)
          : "memory");
    } while (done == 0);
#else
    // Older GPUs: waits for every request, the newest included.
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
#endif
  }
  template <int J>
  __device__ __forceinline__ Unit<F> get(int lane) const {
    Unit<F> unit;
    const std::byte* group = ring_ + at_ * Shape::kGroupBytes;
    unit.load(group + J * unit_shape(F).bytes, group + Shape::kUnits * unit_shape(F).bytes, lane);
    return unit;
  }
  template <int J>
  __device__ __forceinline__ void used() {}
  // The group's bytes are no longer needed.
  __device__ __forceinline__ void release(const SkinnyArgs& a, int lane) {
    __syncwarp();
    request(a, at_, lane);
    if (++at_ == depth_) {
      at_ = 0;
      parity_ ^= 1;
    }
  }

 private:
  __device__ __forceinline__ void request(const SkinnyArgs& a, int at, int lane) {
    constexpr UnitShape kUnit = unit_shape(F);
    std::byte* to = ring_ + at * Shape::kGroupBytes;
    if (source_.left > 0) {
      const int count = source_.count(a);
      const std::byte* from = tile_ + static_cast<int>(unit_offset<F>(source_.unit));
      const std::byte* head = tile_ + static_cast<int>(head_offset<F>(source_.unit));
      const int bytes = count * kUnit.bytes;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
      if (lane == 0) {
        const std::uint32_t barrier = shared_address(barriers_ + at);
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier),
                     "r"(bytes + kUnit.head_bytes)
                     : "memory");
        copy(to, from, bytes, barrier);
        if constexpr (kUnit.head_bytes > 0)
          copy(to + Shape::kUnits * kUnit.bytes, head, kUnit.head_bytes, barrier);
      }
#else
      for (int i = lane * 16; i < bytes; i += 512) copy(to + i, from + i);
      if (lane * 16 < kUnit.head_bytes) copy(to + Shape::kUnits * kUnit.bytes + lane * 16, head + lane * 16);
#endif
      if (source_.advance(a, count)) tile_ = tile_at(a, source_.place);
    }
  }
  __device__ __forceinline__ static void copy(std::byte* to, const std::byte* from, int bytes,
                                              std::uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
  }
  __device__ __forceinline__ static void copy(std::byte* to, const std::byte* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
  }

  SkinnyGroups<Shape::kUnits> source_;
  const std::byte* tile_;
  std::byte* ring_;
  std::uint64_t* barriers_;
  int depth_;
  int at_ = 0;
  std::uint32_t parity_ = 0;
};

}  // namespace snug::kernels::cuda
