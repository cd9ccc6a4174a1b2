// The rope fields of config.json, in both styles, to RopeConfig.
#pragma once

#include <string_view>

#include "base/json.h"
#include "formats/hf_config.h"

namespace snug::formats {

// 4.x: rope_theta and rope_scaling {type or rope_type, …}. 5.x: rope_parameters {rope_type, rope_theta, …}.
// Fills in config.rope and raises config.max_position_embeddings as YaRN allows; head_dim and
// max_position_embeddings must be set. A rope that Snug cannot compute is bad_file, never passed over.
Status parse_rope(const Json& json, std::string_view file, double default_theta, HfConfig& config);

// Checks a scaled rope (factor, betas) and settles original_max_positions and max_position_embeddings.
// `where` begins the errors.
Status finish_rope(std::string_view where, HfConfig& config);

}  // namespace snug::formats
