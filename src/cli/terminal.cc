#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "base/bytes.h"

namespace snug::cli {

bool stderr_is_terminal() {
  return ::isatty(STDERR_FILENO) == 1;
}

ProgressBar::ProgressBar(std::string label, bool enabled)
    : label_(std::move(label)), enabled_(enabled && stderr_is_terminal()) {}

ProgressBar::~ProgressBar() {
  clear();
}

void ProgressBar::update(std::int64_t done, std::int64_t total) {
  if (!enabled_ || total <= 0) return;
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
                       std::chrono::steady_clock::now().time_since_epoch())
                       .count();
  if (drawn_ && now - last_ms_ < 100 && done < total) return;
  last_ms_ = now;
  drawn_ = true;
  constexpr int kWidth = 30;
  const int filled = static_cast<int>(static_cast<double>(done) / static_cast<double>(total) * kWidth);
  const std::string bar = std::string(static_cast<std::size_t>(filled), '=') + (filled < kWidth ? ">" : "");
  fmt::print(stderr, "\r{} [{:<30}] {} of {}\x1b[K", label_, bar.substr(0, kWidth), format_bytes(done),
             format_bytes(total));
  std::fflush(stderr);
}

void ProgressBar::clear() {
  if (!drawn_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

void print_error(const Error& error) {
  fmt::print(stderr, "snug: {}\n", error.message);
  if (!error.remedy.empty()) fmt::print(stderr, "      {}\n", error.remedy);
}

void print_note(std::string_view text) {
  fmt::print(stderr, "{}\n", text);
}

std::string escape_line_ends(std::string json) {
  static constexpr std::pair<std::string_view, std::string_view> kEscapes[] = {
      {"\xC2\x85", "\\u0085"}, {"\xE2\x80\xA8", "\\u2028"}, {"\xE2\x80\xA9", "\\u2029"}};
  for (const auto& [bytes, escape] : kEscapes) {
    for (std::size_t at = 0; (at = json.find(bytes, at)) != std::string::npos; at += escape.size()) {
      json.replace(at, bytes.size(), escape);
    }
  }
  return json;
}

Json error_json(const Error& error) {
  return {{"error",
           {{"code", static_cast<int>(error.code)}, {"message", error.message}, {"remedy", error.remedy}}}};
}

void print_json_error(const Error& error) {
  fmt::print("{}\n", json_line(error_json(error)));
}

}  // namespace snug::cli
