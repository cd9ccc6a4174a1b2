// Errors are values: a typed code, a message that names the thing, and a remedy.
//
// Result<T> holds a T or an Error; Status is a Result without a value. Nothing in Snug throws across
// a function that returns one of these; third-party exceptions are caught where the call is made.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace snug {

// The values are the process's exit codes (see the command-line reference).
enum class ErrorCode {
  failed = 1,        // failed while running
  usage = 2,         // wrong usage: a flag, a sampling value, a prompt that is too long
  does_not_fit = 3,  // the plan refused
  bad_file = 4,      // bad model, adapter or data file
};

struct Error {
  ErrorCode code = ErrorCode::failed;
  std::string message;  // what is wrong, with the file and the field
  std::string remedy;   // what to do about it; may be empty

  // "message; remedy" on one line.
  std::string to_string() const { return remedy.empty() ? message : message + " (" + remedy + ")"; }
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

}  // namespace snug

// Names get the line's number, so that one use may stand inside a lambda in another.
#define SNUG_CONCAT_(a, b) a##b
#define SNUG_CONCAT(a, b) SNUG_CONCAT_(a, b)

// Returns the error of a Result or Status to the caller.
#define SNUG_TRY_(tmp, expression)     \
  do {                                 \
    auto tmp = (expression);           \
    if (!tmp.ok()) return tmp.error(); \
  } while (false)
#define SNUG_TRY(expression) SNUG_TRY_(SNUG_CONCAT(snug_try_, __LINE__), expression)

// SNUG_ASSIGN(auto x, f()): x is f's value, or the caller returns f's error.
#define SNUG_ASSIGN_(tmp, lhs, expression) \
  auto tmp = (expression);                 \
  if (!tmp.ok()) return tmp.error();       \
  lhs = std::move(tmp).value()
#define SNUG_ASSIGN(lhs, expression) SNUG_ASSIGN_(SNUG_CONCAT(snug_result_, __LINE__), lhs, expression)
