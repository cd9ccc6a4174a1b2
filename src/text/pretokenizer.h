// Cuts text into words with regular expressions before byte-pair merging.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace snug::text {

// Immutable after create, so any number of threads may use one.
class Pretokenizer {
 public:
  // bad_file naming `name` and the pattern if one does not compile.
  static Result<Pretokenizer> create(std::span<const std::string> patterns, std::string_view name);
  Pretokenizer();
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  // Appends the pieces of `text` (valid UTF-8) in order: matches and what lies between them, each cut again
  // by the next pattern, which sees only its piece. Joined they are `text`, whatever the patterns do.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Pattern;
  std::vector<Pattern> patterns_;
};

// A pattern that matches exactly `text`.
std::string quote_pattern(std::string_view text);

}  // namespace snug::text
