// JSON Schema (draft 2020-12 and the parts of draft 7 and OpenAPI 3.0 that are still common) as expressions.
#include "grammar/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "grammar/limits.h"
#include "grammar/regex.h"

namespace snug::grammar {
namespace {

// Keywords that restrict values and that are not carried out. Others that are not known say nothing about
// validity (title, description, …) and are passed over, as the specification wants.
constexpr std::string_view kUnsupported[] = {"not",
                                             "if",
                                             "then",
                                             "else",
                                             "patternProperties",
                                             "propertyNames",
                                             "minProperties",
                                             "maxProperties",
                                             "contains",
                                             "minContains",
                                             "maxContains",
                                             "dependencies",
                                             "dependentRequired",
                                             "dependentSchemas",
                                             "unevaluatedItems",
                                             "multipleOf",
                                             "$dynamicRef",
                                             "$recursiveRef"};

// Formats as regular expressions. Others are annotations and are passed over.
struct Format {
  std::string_view name, pattern;
};
#define SNUG_DATE                                                                                            \
  "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[" \
  "1-9]|1[0-9]|2[0-8]))"
#define SNUG_TIME \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define SNUG_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define SNUG_BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
constexpr Format kFormats[] = {
    {"date", SNUG_DATE},
    {"time", SNUG_TIME},
    {"date-time", SNUG_DATE "T" SNUG_TIME},
    {"duration",
     "P(?:[0-9]{1,9}W|(?:[0-9]{1,9}Y)?(?:[0-9]{1,9}M)?[0-9]{1,9}D|(?:[0-9]{1,9}Y)?[0-9]{1,9}M|[0-9]{1,9}Y)"
     "|P(?:(?:[0-9]{1,9}Y)?(?:[0-9]{1,9}M)?(?:[0-9]{1,9}D)?)T(?:(?:[0-9]{1,9}H)?(?:[0-9]{1,9}M)?[0-9]{1,9}S"
     "|(?:[0-9]{1,9}H)?[0-9]{1,9}M|[0-9]{1,9}H)"},
    {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
    {"email", "[A-Za-z0-9_%+-]+(?:\\.[A-Za-z0-9_%+-]+)*@" SNUG_LABEL "(?:\\." SNUG_LABEL ")+"},
    {"hostname", SNUG_LABEL "(?:\\." SNUG_LABEL ")*"},
    {"ipv4", SNUG_BYTE "(?:\\." SNUG_BYTE "){3}"},
    {"ipv6",
     "(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|(?:[0-9a-fA-F]{1,4}:){1,7}:|(?:[0-9a-fA-F]{1,4}:){1,6}:[0-9a-"
     "fA-F]{1,4}"
     "|(?:[0-9a-fA-F]{1,4}:){1,5}(?::[0-9a-fA-F]{1,4}){1,2}|(?:[0-9a-fA-F]{1,4}:){1,4}(?::[0-9a-fA-F]{1,4}){"
     "1,3}"
     "|(?:[0-9a-fA-F]{1,4}:){1,3}(?::[0-9a-fA-F]{1,4}){1,4}|(?:[0-9a-fA-F]{1,4}:){1,2}(?::[0-9a-fA-F]{1,4}){"
     "1,5}"
     "|[0-9a-fA-F]{1,4}:(?::[0-9a-fA-F]{1,4}){1,6}|:(?:(?::[0-9a-fA-F]{1,4}){1,7}|:)"},
    {"uri", "[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\\[\\]@!$&'()*+,;=-]|%[0-9a-fA-F]{2})+"},
};

constexpr std::string_view kTypes[] = {"object", "array", "string", "number", "integer", "boolean", "null"};

bool is_type(const OrderedJson& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (!value.is_number()) return false;
  return type == "number" || value.is_number_integer() ||
         (std::isfinite(value.get<double>()) && std::trunc(value.get<double>()) == value.get<double>());
}

// How many values there are, or more than the limit.
std::size_t count_values(const OrderedJson& value, int depth) {
  if (depth > kMaxJsonDepth) return kMaxSchemaValues + 1;
  std::size_t count = 1;
  if (value.is_structured()) {
    for (const auto& inside : value) {
      count += count_values(inside, depth + 1);
      if (count > kMaxSchemaValues) break;
    }
  }
  return count;
}

class SchemaReader {
 public:
  SchemaReader(Expressions& expressions, JsonText& json, const OrderedJson& root)
      : e_(expressions), json_(json), root_(root) {}

  Result<ExprId> read(const OrderedJson& schema, const std::string& path) {
    if (schema.is_boolean()) return schema.get<bool>() ? json_.any() : e_.nothing();
    if (!schema.is_object()) return wrong(path, "a schema must be an object, true or false", "correct it");
    if (depth_ >= kMaxSchemaDepth) {
      return wrong(path, fmt::format("schemas nest deeper than {} levels", kMaxSchemaDepth),
                   "make it flatter");
    }
    ++depth_;
    auto result = read_object(schema, path);
    --depth_;
    return result;
  }

 private:
  static Error wrong(const std::string& path, std::string what, std::string remedy) {
    return {ErrorCode::usage, fmt::format("{}: {}", path, what), std::move(remedy)};
  }
  static Error unsupported(const std::string& path, std::string_view keyword) {
    return wrong(path, fmt::format("the keyword {} is not supported", keyword),
                 "leave it out and check the answer instead");
  }
  static Error at(const std::string& path, Error error) {
    error.message = fmt::format("{}: {}", path, error.message);
    return error;
  }

  static const OrderedJson* find(const OrderedJson& schema, std::string_view keyword) {
    const auto it = schema.find(keyword);
    return it == schema.end() ? nullptr : &*it;
  }

  Result<ExprId> read_object(const OrderedJson& schema, const std::string& path) {
    for (const auto keyword : kUnsupported) {
      if (schema.contains(keyword)) return unsupported(path, keyword);
    }
    if (const auto* unique = find(schema, "uniqueItems"); unique && *unique != false) {
      return unsupported(path, "uniqueItems");
    }
    if (const auto* closed = find(schema, "unevaluatedProperties"); closed && *closed != false) {
      return unsupported(path, "unevaluatedProperties");
    }
    SNUG_ASSIGN(ExprId value, read_value(schema, path));
    if (const auto* nullable = find(schema, "nullable"); nullable && *nullable == true) {
      value = e_.alternatives({value, json_.null()});
    }
    return value;
  }

  Result<ExprId> read_value(const OrderedJson& schema, const std::string& path) {
    if (const auto* ref = find(schema, "$ref")) return reference(*ref, path);
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (const auto* options = find(schema, keyword)) return any_of(*options, path + "/" + keyword);
    }
    if (const auto* all = find(schema, "allOf")) {
      if (!all->is_array() || all->size() != 1) return unsupported(path, "allOf");
      return read((*all)[0], path + "/allOf/0");
    }
    SNUG_ASSIGN(const auto types, types_of(schema, path));
    if (const auto* values = find(schema, "enum")) {
      if (!values->is_array()) return wrong(path, "enum must be a list", "list the values");
      std::vector<ExprId> parts;
      for (const auto& value : *values) {
        if (allowed(value, types)) parts.push_back(json_.value(value));
      }
      return e_.alternatives(std::move(parts));
    }
    if (const auto* value = find(schema, "const")) {
      return allowed(*value, types) ? json_.value(*value) : e_.nothing();
    }
    if (types.empty()) return json_.any();
    std::vector<ExprId> parts;
    for (const auto& type : types) {
      SNUG_ASSIGN(const ExprId part, of_type(schema, type, path));
      parts.push_back(part);
    }
    return e_.alternatives(std::move(parts));
  }

  static bool allowed(const OrderedJson& value, const std::vector<std::string>& types) {
    return types.empty() ||
           std::any_of(types.begin(), types.end(), [&](const auto& type) { return is_type(value, type); });
  }

  // Without `type`, what the other keywords are about; nothing if they are about nothing.
  Result<std::vector<std::string>> types_of(const OrderedJson& schema, const std::string& path) {
    std::vector<std::string> types;
    const auto* type = find(schema, "type");
    if (type == nullptr) {
      if (schema.contains("enum") || schema.contains("const")) return types;
      const auto about = [&](std::string_view name, std::initializer_list<const char*> keywords) {
        if (std::any_of(keywords.begin(), keywords.end(),
                        [&](const char* k) { return schema.contains(k); })) {
          types.emplace_back(name);
        }
      };
      about("object", {"properties", "required", "additionalProperties"});
      about("array", {"items", "prefixItems", "minItems", "maxItems"});
      about("string", {"minLength", "maxLength", "pattern", "format"});
      about("number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"});
      return types;
    }
    const auto list = type->is_array() ? *type : OrderedJson::array({*type});
    for (const auto& name : list) {
      if (!name.is_string() ||
          std::find(std::begin(kTypes), std::end(kTypes), name.get<std::string>()) == std::end(kTypes)) {
        return wrong(path, fmt::format("type {} is not known", name.dump()),
                     "use object, array, string, number, integer, boolean or null");
      }
      types.push_back(name.get<std::string>());
    }
    if (types.empty()) return wrong(path, "type is an empty list", "name a type");
    return types;
  }

  Result<ExprId> of_type(const OrderedJson& schema, const std::string& type, const std::string& path) {
    if (type == "object") return object(schema, path);
    if (type == "array") return array(schema, path);
    if (type == "string") return string(schema, path);
    if (type == "number" || type == "integer") return number(schema, type == "integer", path);
    return type == "boolean" ? json_.boolean() : json_.null();
  }

  // A count such as minLength.
  Result<std::uint32_t> count(const OrderedJson& schema, std::string_view keyword, std::uint32_t absent,
                              const std::string& path) {
    const auto* value = find(schema, keyword);
    if (value == nullptr) return absent;
    if (!value->is_number() || value->get<double>() < 0 || !is_type(*value, "integer")) {
      return wrong(path, fmt::format("{} must be a whole number of 0 or more", keyword), "correct it");
    }
    if (value->get<double>() > kMaxRepeat) {
      return wrong(path, fmt::format("{} of {} is above the limit of {}", keyword, value->dump(), kMaxRepeat),
                   "use a smaller one, or leave it out");
    }
    return static_cast<std::uint32_t>(value->get<double>());
  }

  Result<ExprId> object(const OrderedJson& schema, const std::string& path) {
    struct Property {
      std::string name;
      const OrderedJson* schema;
      bool required = false;
    };
    std::vector<Property> properties;
    std::map<std::string, std::size_t> places;
    if (const auto* given = find(schema, "properties")) {
      if (!given->is_object()) return wrong(path, "properties must be an object", "correct it");
      for (const auto& [name, inside] : given->items()) {
        if (name.size() > kMaxNameBytes) {
          return wrong(path, fmt::format("a property's name has more than {} bytes", kMaxNameBytes),
                       "shorten it");
        }
        places.emplace(name, properties.size());
        properties.push_back({name, &inside});
      }
    }
    const auto* required = find(schema, "required");
    if (required != nullptr) {
      if (!required->is_array()) return wrong(path, "required must be a list of names", "correct it");
      for (const auto& name : *required) {
        if (!name.is_string()) return wrong(path, "required must be a list of names", "correct it");
        const auto text = name.get<std::string>();
        const auto [place, is_new] = places.emplace(text, properties.size());
        if (is_new) {
          if (text.size() > kMaxNameBytes) {
            return wrong(path, fmt::format("a property's name has more than {} bytes", kMaxNameBytes),
                         "shorten it");
          }
          properties.push_back({text, find(schema, "additionalProperties")});
        }
        properties[place->second].required = true;
      }
    }
    const auto* more = find(schema, "additionalProperties");
    static const OrderedJson kAny = true;
    // Properties that are not listed come only where the schema asks for them, or lists none.
    const bool open =
        more != nullptr ? *more != false : properties.empty() && !schema.contains("unevaluatedProperties");
    std::vector<ExprId> members;
    std::vector<bool> is_required;
    std::vector<std::string_view> names;
    bool may_be_empty = true;
    for (const auto& property : properties) {
      SNUG_ASSIGN(const ExprId value,
                  read(property.schema ? *property.schema : kAny, path + "/properties/" + property.name));
      names.push_back(property.name);
      members.push_back(json_.member(json_.name(property.name), value));
      is_required.push_back(property.required);
      may_be_empty = may_be_empty && !property.required;
    }
    ExprId rest = e_.nothing();
    if (open) {
      if (properties.empty() && (more == nullptr || *more == true || (more->is_object() && more->empty()))) {
        return json_.object();
      }
      SNUG_ASSIGN(const ExprId value, read(more ? *more : kAny, path + "/additionalProperties"));
      rest = json_.member(json_.other_name(names), value);
    }
    return json_.object_of(members, std::move(is_required), rest, may_be_empty);
  }

  Result<ExprId> array(const OrderedJson& schema, const std::string& path) {
    SNUG_ASSIGN(const std::uint32_t min, count(schema, "minItems", 0, path));
    SNUG_ASSIGN(const std::uint32_t max, count(schema, "maxItems", kUnbounded, path));
    if (min > max) return e_.nothing();
    std::vector<ExprId> prefix;
    if (const auto* given = find(schema, "prefixItems")) {
      if (!given->is_array()) return wrong(path, "prefixItems must be a list of schemas", "correct it");
      for (std::size_t i = 0; i < given->size(); ++i) {
        SNUG_ASSIGN(const ExprId item, read((*given)[i], fmt::format("{}/prefixItems/{}", path, i)));
        prefix.push_back(item);
      }
    }
    const auto* items = find(schema, "items");
    if (items == nullptr && prefix.empty() && min == 0 && max == kUnbounded) return json_.array();
    ExprId item = prefix.empty() ? json_.any() : e_.nothing();
    if (items != nullptr) {
      SNUG_ASSIGN(item, read(*items, path + "/items"));
    }
    return json_.array_of(prefix, item, min, max);
  }

  Result<ExprId> string(const OrderedJson& schema, const std::string& path) {
    SNUG_ASSIGN(const std::uint32_t min, count(schema, "minLength", 0, path));
    SNUG_ASSIGN(const std::uint32_t max, count(schema, "maxLength", kUnbounded, path));
    if (min > max) return e_.nothing();
    const bool bounded = min > 0 || max != kUnbounded;
    std::string_view pattern;
    Extent extent = Extent::whole;
    if (const auto* format = find(schema, "format"); format && format->is_string()) {
      for (const auto& known : kFormats) {
        if (known.name == format->get_ref<const std::string&>()) pattern = known.pattern;
      }
    }
    if (const auto* given = find(schema, "pattern")) {
      if (!given->is_string()) return wrong(path, "pattern must be a string", "correct it");
      if (!pattern.empty())
        return wrong(path, "pattern and format together are not supported", "use one of them");
      pattern = given->get_ref<const std::string&>();
      extent = Extent::search;
    } else if (pattern.empty()) {
      return bounded ? json_.string(min, max) : json_.string();
    }
    if (bounded) {
      return wrong(path, "a length together with pattern or format is not supported",
                   "say the length in the pattern, or use one of them");
    }
    const auto inside = parse_regex(e_, pattern, TextForm::json_string, extent);
    if (!inside.ok()) return at(path + "/pattern", inside.error());
    return e_.concat({e_.literal("\""), *inside, e_.literal("\"")});
  }

  Result<ExprId> number(const OrderedJson& schema, bool integer, const std::string& path) {
    // The whole numbers within the limits.
    std::int64_t low = -kMaxInteger, high = kMaxInteger;
    bool bounded = false;
    for (const char* keyword : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      const auto* given = find(schema, keyword);
      if (given == nullptr) continue;
      if (!given->is_number() || !std::isfinite(given->get<double>())) {
        return wrong(path, fmt::format("{} must be a number", keyword), "correct it");
      }
      bounded = true;
      const bool is_low = std::string_view(keyword).ends_with("inimum");
      const bool open = keyword[0] == 'e';
      const double value = given->get<double>();
      const double edge = static_cast<double>(kMaxInteger);
      std::int64_t whole = 0;
      if (given->is_number_integer() && std::abs(value) < edge) {
        whole = given->get<std::int64_t>() + (open ? (is_low ? 1 : -1) : 0);
      } else {
        double rounded = is_low ? std::ceil(value) : std::floor(value);
        if (open && rounded == value) rounded += is_low ? 1 : -1;
        // Beyond what is written at all.
        if (is_low ? rounded > edge : rounded < -edge) return e_.nothing();
        whole = static_cast<std::int64_t>(std::clamp(rounded, -edge, edge));
      }
      is_low ? low = std::max(low, whole) : high = std::min(high, whole);
    }
    if (!bounded) return integer ? json_.integer() : json_.number();
    if (!integer) {
      return wrong(path, "limits of a number that is no integer are not supported",
                   "use type integer, or no limits");
    }
    return json_.integer(low, high);
  }

  Result<ExprId> any_of(const OrderedJson& options, const std::string& path) {
    if (!options.is_array() || options.empty())
      return wrong(path, "it must be a list of schemas", "list some");
    std::vector<ExprId> parts;
    for (std::size_t i = 0; i < options.size(); ++i) {
      SNUG_ASSIGN(const ExprId part, read(options[i], fmt::format("{}/{}", path, i)));
      parts.push_back(part);
    }
    return e_.alternatives(std::move(parts));
  }

  Result<ExprId> reference(const OrderedJson& ref, const std::string& path) {
    if (!ref.is_string()) return wrong(path, "$ref must be a string", "write it as #/$defs/name");
    const auto text = ref.get<std::string>();
    if (const auto it = references_.find(text); it != references_.end()) return e_.call(it->second);
    const OrderedJson* target = nullptr;
    if (text == "#") target = &root_;
    if (text.starts_with("#/")) {
      try {
        const OrderedJson::json_pointer pointer(text.substr(1));
        if (root_.contains(pointer)) target = &root_.at(pointer);
      } catch (const OrderedJson::exception&) {
        target = nullptr;
      }
    }
    if (target == nullptr) {
      return wrong(path, fmt::format("$ref {} leads nowhere", text),
                   "refer to a part of this schema as #/$defs/name");
    }
    const RuleId rule = e_.add_rule("$ref " + text, true);
    references_.emplace(text, rule);
    SNUG_ASSIGN(const ExprId body, read(*target, text));
    e_.set_rule(rule, body);
    return e_.call(rule);
  }

  static constexpr std::size_t kMaxNameBytes = 512;
  Expressions& e_;
  JsonText& json_;
  const OrderedJson& root_;
  std::map<std::string, RuleId> references_;
  int depth_ = 0;
};

}  // namespace

Result<ExprId> read_json_schema(Expressions& expressions, JsonText& json, const OrderedJson& schema) {
  if (count_values(schema, 0) > kMaxSchemaValues) {
    return Error{ErrorCode::usage,
                 fmt::format("the schema has more than {} values or nests deeper than {} levels",
                             kMaxSchemaValues, kMaxJsonDepth),
                 "use a smaller one"};
  }
  return SchemaReader(expressions, json, schema).read(schema, "#");
}

}  // namespace snug::grammar
