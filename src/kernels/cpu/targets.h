// Which instruction sets the kernels are compiled for. Include it first, before any Highway header.
#pragma once

// SSSE3 and SSE4 double the compile time for machines older than 2013: those run the portable code.
// SVE vectors have no compile-time size, so they cannot be kept in arrays as the tiles here do: NEON runs
// there.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
