// The sixteen levels of the iq4 formats, dense near zero where most weights are, and their nearest-level
// search.
#pragma once

#include <cstdint>

namespace snug::quant {

inline constexpr std::int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

// Index of the level nearest to x. NaN becomes index 0.
int iq4_nearest(float x);

// Sum of squared errors of 32 elements with this scale.
float iq4_error(const float* x, float scale);

// The scale (of either sign) for 32 elements with the least squared error among some tried.
float iq4_fit(const float* x);

}  // namespace snug::quant
