#include "formats/hf_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "formats/bad_file.h"

namespace snug::formats {
namespace {

constexpr double kMaxFactor = 10'000.0;
constexpr const char* kSupported = "supported are default, mrope, linear and yarn";

Result<RopeConfig::Type> type_of(std::string_view name, std::string_view where, std::string_view field) {
  if (name == "default" || name == "mrope" || name == "none") return RopeConfig::Type::plain;
  if (name == "linear") return RopeConfig::Type::linear;
  if (name == "yarn") return RopeConfig::Type::yarn;
  return bad_file(where, fmt::format("{} {} is not supported", field, name), kSupported);
}

// `type` is the old spelling of `rope_type`, and files carry either or both; M-RoPE is written as type
// "mrope", rope_type "default" or both. A scaled type in either field counts, so that none is dropped
// silently.
Result<RopeConfig::Type> read_type(const Json& rope, std::string_view where) {
  std::optional<RopeConfig::Type> found;
  for (const char* field : {"rope_type", "type"}) {
    SNUG_ASSIGN(const auto name, optional_string(rope, field, where));
    if (!name) continue;
    SNUG_ASSIGN(const auto type, type_of(*name, where, field));
    if (found && *found != RopeConfig::Type::plain && type != RopeConfig::Type::plain && type != *found) {
      return bad_file(where, "type and rope_type contradict each other", "remove one of them");
    }
    if (!found || *found == RopeConfig::Type::plain) found = type;
  }
  return found.value_or(RopeConfig::Type::plain);
}

// What a file says about scaling beside the type; fields that would change the result and are not computed
// here are refused.
Status read_scaling(const Json& rope, std::string_view where, RopeConfig& out) {
  SNUG_ASSIGN(const auto factor, optional_number(rope, "factor", where));
  if (out.type == RopeConfig::Type::plain) {
    if (factor && *factor != 1.0) {
      return bad_file(where, fmt::format("factor {} without a type that uses it", *factor),
                      "set rope_type to yarn or linear, or remove factor");
    }
    return {};
  }
  if (!factor) return bad_file(where, "factor is missing", "add the factor by which positions are stretched");
  out.factor = *factor;
  if (out.type == RopeConfig::Type::linear) return {};

  SNUG_ASSIGN(const auto original,
              optional_int(rope, "original_max_position_embeddings", where, 1, kMaxPositions));
  out.original_max_positions = original.value_or(0);
  SNUG_ASSIGN(const auto fast, optional_number(rope, "beta_fast", where));
  SNUG_ASSIGN(const auto slow, optional_number(rope, "beta_slow", where));
  out.beta_fast = fast.value_or(out.beta_fast);
  out.beta_slow = slow.value_or(out.beta_slow);
  SNUG_ASSIGN(out.attention_factor, optional_number(rope, "attention_factor", where));
  for (const char* field : {"mscale", "mscale_all_dim"}) {
    SNUG_ASSIGN(const auto mscale, optional_number(rope, field, where));
    if (mscale && *mscale != 0.0) {
      return bad_file(where, fmt::format("{} is not supported", field), "use attention_factor");
    }
  }
  SNUG_ASSIGN(const auto truncate, optional_bool(rope, "truncate", where));
  if (truncate && !*truncate)
    return bad_file(where, "truncate false is not supported", "remove it or set it to true");
  return {};
}

Status read_mrope_section(const Json& rope, std::string_view where, std::int64_t head_dim, RopeConfig& out) {
  const auto section = rope.find("mrope_section");
  if (section == rope.end() || section->is_null()) return {};
  const auto refuse = [&] {
    return bad_file(where,
                    fmt::format("mrope_section must be three positive numbers with the sum {}", head_dim / 2),
                    "copy mrope_section from the original checkpoint");
  };
  if (!section->is_array() || section->size() != 3) return refuse();
  std::int64_t sum = 0;
  for (const Json& part : *section) {
    if (!part.is_number_integer()) return refuse();
    const auto value = part.get<std::int64_t>();  // beyond 63 bits: negative
    if (value < 1 || value > head_dim) return refuse();
    out.mrope_section.push_back(static_cast<int>(value));
    sum += out.mrope_section.back();
  }
  return sum == head_dim / 2 ? Status{} : Status(refuse());
}

}  // namespace

Status finish_rope(std::string_view where, HfConfig& config) {
  RopeConfig& rope = config.rope;
  if (!(rope.theta > 0.0 && rope.theta <= 1e15)) {
    return bad_file(where, fmt::format("rope_theta must be above 0, not {}", rope.theta),
                    "copy it from the original");
  }
  if (rope.type == RopeConfig::Type::plain) return {};
  if (!(rope.factor >= 1.0 && rope.factor <= kMaxFactor)) {
    return bad_file(where, fmt::format("factor must be from 1 to {}, not {}", kMaxFactor, rope.factor),
                    "correct factor in that file");
  }
  if (rope.type == RopeConfig::Type::linear) return {};
  if (!(rope.beta_slow > 0.0 && rope.beta_fast >= rope.beta_slow && rope.beta_fast <= 1e6)) {
    return bad_file(where, "beta_fast must be at least beta_slow, and both above 0",
                    "remove them for the usual 32 and 1");
  }
  if (rope.attention_factor && !(*rope.attention_factor > 0.0 && *rope.attention_factor <= 1e3)) {
    return bad_file(where, fmt::format("attention_factor must be above 0, not {}", *rope.attention_factor),
                    "remove it for the usual 0.1 ln(factor) + 1");
  }
  if (rope.original_max_positions == 0) rope.original_max_positions = config.max_position_embeddings;
  // Files state the window before or after stretching; either way the stretched one is allowed.
  const double stretched = rope.factor * static_cast<double>(rope.original_max_positions);
  config.max_position_embeddings =
      std::max(config.max_position_embeddings,
               static_cast<std::int64_t>(std::min(stretched, static_cast<double>(kMaxPositions))));
  return {};
}

Status parse_rope(const Json& json, std::string_view file, double default_theta, HfConfig& config) {
  // A rope_scaling added by hand to a 5.x file is a wish, so it comes before rope_parameters.
  const Json* scaling = nullptr;
  std::string where(file);
  config.rope.theta = default_theta;
  SNUG_ASSIGN(const auto top_theta, optional_number(json, "rope_theta", file));
  if (top_theta) config.rope.theta = *top_theta;
  for (const char* field : {"rope_parameters", "rope_scaling"}) {
    const auto at = json.find(field);
    if (at == json.end() || at->is_null()) continue;
    const bool nested =
        at->is_object() && std::ranges::any_of(*at, [](const Json& v) { return v.is_object(); });
    if (!at->is_object() || nested) {
      return bad_file(file, fmt::format("{} must be an object of plain values", field),
                      "rope parameters per kind of layer are not supported");
    }
    scaling = &*at;
    where = fmt::format("{}: {}", file, field);
    SNUG_ASSIGN(const auto theta, optional_number(*scaling, "rope_theta", where));
    if (theta) config.rope.theta = *theta;
  }
  if (scaling != nullptr) {
    SNUG_ASSIGN(config.rope.type, read_type(*scaling, where));
    SNUG_TRY(read_scaling(*scaling, where, config.rope));
    SNUG_TRY(read_mrope_section(*scaling, where, config.head_dim, config.rope));
  }
  for (const Json* object : {&json, scaling}) {
    if (object == nullptr) continue;
    SNUG_ASSIGN(const auto partial, optional_number(*object, "partial_rotary_factor", file));
    if (partial && *partial != 1.0) {
      return bad_file(file, fmt::format("partial_rotary_factor {} is not supported", *partial), "only 1 is");
    }
  }
  return finish_rope(where, config);
}

}  // namespace snug::formats
