// What people see on stderr: progress bars, summaries and errors. Off where stderr is not a terminal, or with
// --quiet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace snug::cli {

bool stderr_is_terminal();

// "Loading  [=====>     ]  1.2 GiB of 4.4 GiB", redrawn in place at most ten times a second; cleared at the
// end.
class ProgressBar {
 public:
  ProgressBar(std::string label, bool enabled);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void update(std::int64_t done, std::int64_t total);
  void clear();

 private:
  std::string label_;
  bool enabled_;
  bool drawn_ = false;
  std::int64_t last_ms_ = 0;
};

void print_error(const Error& error);
void print_note(std::string_view text);  // one line on stderr

// One line of JSON. What some readers take for the end of a line inside a text (U+0085, U+2028, U+2029) is
// escaped, bytes that are not UTF-8 become U+FFFD.
std::string escape_line_ends(std::string json);
template <class J>
std::string json_line(const J& value) {
  return escape_line_ends(value.dump(-1, ' ', false, J::error_handler_t::replace));
}

// {"error": {"code", "message", "remedy"}}
Json error_json(const Error& error);

// With --json a failure too is one JSON object on stdout: {"error": {"code", "message", "remedy"}}.
void print_json_error(const Error& error);

}  // namespace snug::cli
