// Which number format each matrix has in a checkpoint of a named type, as the common GGUF files mix them.
#pragma once

#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/config.h"
#include "model/weight_specs.h"

namespace snug::model {

// Weights for a model without a file (tensor.file is -1; shapes, formats and bytes are set). `type` is a
// format's name ("bf16", "q4_0") or a mix ("q4_k_m"). usage error naming the types otherwise.
Result<std::vector<BoundWeight>> weights_of_type(const Config& config, std::string_view type);

}  // namespace snug::model
