// Hopper's asynchronous instructions (PTX ISA, sections on mbarrier, cp.async.bulk.tensor and wgmma), as far
// as the kernels use them. Compiles to something only for sm_90a: callers keep to __CUDA_ARCH_FEAT_SM90_ALL.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace snug::kernels::cuda::hopper {

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// Barriers in shared memory that count arrivals and the bytes of copies. A wait names the parity of the phase
// that must have ended: 0 for the first, 1 for the second, and so on in turn.
__device__ __forceinline__ void barrier_init(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes the initialised barriers known to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_arrive_expect(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_wait(std::uint32_t barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// The hardware's numbered barriers (0 is __syncthreads): `threads` of the block take part.
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Orders this thread's ordinary accesses to shared memory before later ones by copy engine and tensor cores.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Four 8x8 matrices of 16-bit values, each lane giving the address of one row.
__device__ __forceinline__ void store_matrices(std::uint32_t to, std::uint32_t a, std::uint32_t b,
                                               std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ uint4 load_shared(std::uint32_t from) {
  uint4 x;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(from)
               : "memory");
  return x;
}

// A warpgroup's share of the block's registers.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<std::uint64_t>(map)) : "memory");
}

// Copies the box of a two-dimensional map that starts at (column, row); what lies outside the array arrives
// as zeros, and its bytes count.
__device__ __forceinline__ void copy_box(std::uint32_t to, const CUtensorMap* map, int column, int row,
                                         std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(to),
      "l"(reinterpret_cast<std::uint64_t>(map)), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

// A matrix in shared memory as wgmma reads it: rows of 128 bytes, 16-byte chunks exchanged within each eight
// rows (the 128-byte swizzle), eight rows 1024 bytes apart. `wide` is the distance in bytes from one column
// of such rows to the next; only matrices whose rows are the summed index (V) are read across columns.
__device__ __forceinline__ std::uint64_t matrix_descriptor(std::uint32_t address, int wide) {
  return static_cast<std::uint64_t>((address & 0x3FFFFu) >> 4) |
         (static_cast<std::uint64_t>(wide >> 4) << 16) | (std::uint64_t{1024 >> 4} << 32) |
         (std::uint64_t{1} << 62);
}

// Registers that other instructions wrote are ready for the products that follow.
__device__ __forceinline__ void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// At most kPending of the committed groups are still under way.
template <int kPending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving accesses to accumulators across a wait, of which it knows nothing.
template <int kCount>
__device__ __forceinline__ void keep(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define SNUG_ACCUMULATORS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SNUG_ACCUMULATORS_16(d, i)                                                         \
  SNUG_ACCUMULATORS_4(d, i), SNUG_ACCUMULATORS_4(d, i + 4), SNUG_ACCUMULATORS_4(d, i + 8), \
      SNUG_ACCUMULATORS_4(d, i + 12)

// d (64, 128) = a (64, 16) b (128, 16)^T, or added to d; both from shared memory.
__device__ __forceinline__ void multiply_shared(float (&d)[64], std::uint64_t a, std::uint64_t b,
                                                bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;\n}"
      : SNUG_ACCUMULATORS_16(d, 0), SNUG_ACCUMULATORS_16(d, 16), SNUG_ACCUMULATORS_16(d, 32),
        SNUG_ACCUMULATORS_16(d, 48)
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

// d (64, 128) += a (64, 16) b (16, 128): a from registers, b from shared memory with its 16 rows as stored.
__device__ __forceinline__ void multiply_registers(float (&d)[64], const std::uint32_t (&a)[4],
                                                   std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
      : SNUG_ACCUMULATORS_16(d, 0), SNUG_ACCUMULATORS_16(d, 16), SNUG_ACCUMULATORS_16(d, 32),
        SNUG_ACCUMULATORS_16(d, 48)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// d (64, 64) += a (64, 16) b (16, 64), the same.
__device__ __forceinline__ void multiply_registers(float (&d)[32], const std::uint32_t (&a)[4],
                                                   std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
      : SNUG_ACCUMULATORS_16(d, 0), SNUG_ACCUMULATORS_16(d, 16)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef SNUG_ACCUMULATORS_4
#undef SNUG_ACCUMULATORS_16

}  // namespace snug::kernels::cuda::hopper
