// The kernels' instruction sets, and AVX-512 with VNNI (Ice Lake, Zen 4 and later) for integer products.
// Include it first, before any Highway header.
#pragma once

#include "kernels/cpu/targets.h"

#define HWY_WANT_AVX3_DL
