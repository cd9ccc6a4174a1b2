// What people see on stderr: progress bars, summaries and errors. Off where stderr is not a terminal, or with
// --quiet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

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

// With --json a failure too is one JSON object on stdout: {"error": {"code", "message", "remedy"}}.
void print_json_error(const Error& error);

}  // namespace snug::cli
