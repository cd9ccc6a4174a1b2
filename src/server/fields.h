// Typed fields of a request's body. null is the same as absent; what was never asked for is reported.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/api_error.h"

namespace snug::server {

// Keeps the first fault and goes on, so that a reader needs to look once, at the end.
class Fields {
 public:
  // `object` must outlive it. `prefix` begins the names in messages: "stream_options.".
  explicit Fields(const OrderedJson& object, std::string prefix = "");

  std::optional<bool> boolean(const std::string& name);
  std::optional<double> number(const std::string& name);
  std::optional<std::int64_t> integer(const std::string& name, std::int64_t min, std::int64_t max);
  std::optional<std::string> string(const std::string& name);
  // A string, or a list of strings.
  std::optional<std::vector<std::string>> strings(const std::string& name);
  // Whatever it is; null if absent.
  const OrderedJson& any(const std::string& name);
  void fail(const std::string& name, const std::string& message);

  bool ok() const { return !fault_; }
  const ApiError& error() const { return *fault_; }
  // Names in the object that nobody asked for.
  std::vector<std::string> unknown() const;

 private:
  const OrderedJson* find(const std::string& name);

  const OrderedJson& object_;
  std::string prefix_;
  std::set<std::string> asked_;
  std::optional<ApiError> fault_;
};

}  // namespace snug::server
