// A warp's ring of weights in shared memory. Each warp asks for its own, always as far ahead as the ring is
// long: across the end of a product, a layer, a barrier of the grid. Weights depend on nothing, so memory
// need never wait for arithmetic.
#pragma once

#include "kernels/cuda/decode_args.cuh"

namespace snug::kernels::cuda {

inline constexpr int kDecodeDepth = 8;  // groups of a ring of packed weights, at most
inline constexpr int kRowsDepth = 5;    // groups of a ring of bfloat16

// Where the next request goes: through all products in order.
struct DecodeCursor {
  const DecodePart* parts;
  int phases, phase = -1;
  quant::Format format = {};
  const std::byte* tile = nullptr;
  DecodeGroups groups;

  // Goes on to a product that has units left for this warp; false: there is none.
  __device__ __forceinline__ bool find(int warp) {
    while (groups.left == 0) {
      if (phase + 1 >= phases) return false;
      const DecodePart& part = parts[++phase];
      groups.enter(part, warp);
      format = part.format;
      if (groups.left != 0) tile = part.tile_at(groups.place);
    }
    return true;
  }
  __device__ __forceinline__ void advance(int count) {
    if (groups.advance(count)) tile = parts[phase].tile_at(groups.place);
  }
};

__device__ __forceinline__ std::uint32_t ring_address(const void* at) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

// Packed weights: a group is a run of bytes, which the copy engine brings.
class PackedRing {
 public:
  static constexpr int kBarriers = kDecodeDepth;

  __device__ __forceinline__ PackedRing(const DecodeArgs& a, const DecodePart* parts, std::byte* slots,
                                        std::uint64_t* barriers, int warp, int lane)
      : cursor_{parts, phase_count(a)}, slots_(slots), barriers_(ring_address(barriers)) {
    if (lane == 0) {
      for (int i = 0; i < a.depth; ++i) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barriers_ + 8 * i) : "memory");
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    for (int i = 0; i < a.depth; ++i) request(a, i, warp, lane);
  }
  // Waits for the group at hand and says where it is.
  __device__ __forceinline__ const std::byte* arrive(const DecodeArgs& a) {
    std::uint32_t done;
    do {
      asm volatile(
          "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(barriers_ + 8 * at_), "r"(parity_)
          : "memory");
    } while (done == 0);
    return slots_ + at_ * a.slot_bytes;
  }
  // The group's bytes are no longer needed.
  __device__ __forceinline__ void release(const DecodeArgs& a, int warp, int lane) {
    __syncwarp();
    request(a, at_, warp, lane);
    if (++at_ == a.depth) {
      at_ = 0;
      parity_ ^= 1;
    }
  }

 private:
  __device__ __forceinline__ void request(const DecodeArgs& a, int at, int warp, int lane) {
    using quant::Format;
    if (!cursor_.find(warp)) return;
    switch (cursor_.format) {
      case Format::q4_0:
        return request_of<Format::q4_0>(a, at, lane);
      case Format::q8_0:
        return request_of<Format::q8_0>(a, at, lane);
      case Format::q4_k:
        return request_of<Format::q4_k>(a, at, lane);
      default:
        return request_of<Format::q6_k>(a, at, lane);
    }
  }
  template <quant::Format F>
  __device__ __forceinline__ void request_of(const DecodeArgs& a, int at, int lane) {
    constexpr UnitShape kUnit = unit_shape(F);
    const int count = cursor_.groups.count<group_units(F)>();
    if (lane == 0) {
      const std::uint32_t barrier = barriers_ + 8 * at;
      const std::uint32_t to = ring_address(slots_ + at * a.slot_bytes);
      const int bytes = count * kUnit.bytes, unit = cursor_.groups.unit;
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier),
                   "r"(bytes + kUnit.head_bytes)
                   : "memory");
      copy(to, cursor_.tile + static_cast<int>(unit_offset<F>(unit)), bytes, barrier);
      if constexpr (kUnit.head_bytes > 0) {
        copy(to + group_units(F) * kUnit.bytes, cursor_.tile + static_cast<int>(head_offset<F>(unit)),
             kUnit.head_bytes, barrier);
      }
    }
    cursor_.advance(count);
  }
  __device__ __forceinline__ static void copy(std::uint32_t to, const std::byte* from, int bytes,
                                              std::uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
  }

  DecodeCursor cursor_;
  std::byte* slots_;
  std::uint32_t barriers_;
  int at_ = 0;
  std::uint32_t parity_ = 0;
};

// Rows of bfloat16: a group is 16 rows of 64 columns, which the lanes bring, 16 bytes at a time. In shared
// memory the halves of odd rows change places, so that a warp's reads of two rows meet no bank twice.
class RowsRing {
 public:
  static constexpr int kBarriers = 1;
  static constexpr int kGroupBytes = 2048;

  __device__ __forceinline__ RowsRing(const DecodeArgs& a, const DecodePart* parts, std::byte* slots,
                                      std::uint64_t*, int warp, int lane)
      : cursor_{parts, phase_count(a)}, slots_(slots) {
    for (int i = 0; i < kRowsDepth; ++i) request(a, i, warp, lane);
  }
  __device__ __forceinline__ const std::byte* arrive(const DecodeArgs&) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kRowsDepth - 1) : "memory");
    __syncwarp();
    return slots_ + at_ * kGroupBytes;
  }
  __device__ __forceinline__ void release(const DecodeArgs& a, int warp, int lane) {
    __syncwarp();
    request(a, at_, warp, lane);
    at_ = at_ + 1 == kRowsDepth ? 0 : at_ + 1;
  }

 private:
  __device__ __forceinline__ void request(const DecodeArgs& a, int at, int warp, int lane) {
    if (cursor_.find(warp)) {
      const int row = lane / 8, chunk = lane % 8, row_bytes = cursor_.groups.tile_units * 64;
      const std::byte* from = cursor_.tile + row * row_bytes + cursor_.groups.unit * 64 + chunk * 16;
      const std::uint32_t to =
          ring_address(slots_ + at * kGroupBytes + row * 128 + (chunk ^ row % 2 * 4) * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to + i * 512),
                     "l"(from + static_cast<std::int64_t>(i) * 4 * row_bytes)
                     : "memory");
      }
      cursor_.advance(2);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");  // none too, so that counting goes on
  }

  DecodeCursor cursor_;
  std::byte* slots_;
  int at_ = 0;
};

}  // namespace snug::kernels::cuda
