// Text of a token stream as it grows: append-only, never half a character, and nothing of a stop string.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace snug::text {

// Turns tokens into text piece by piece. An unfinished UTF-8 tail is held until it is complete, proves
// invalid (then U+FFFD, as decode() of all ids gives) or finish() is called. The pieces joined equal
// Tokenizer::decode of all ids, save that finish() drops a character cut in half at the very end.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}
  std::string push(TokenId id);
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;  // bytes of an unfinished character
};

// Looks for stop strings in streamed text. Holds back only a suffix that is a proper prefix of some stop
// string. The match that is complete first counts (generation need not go on to tell); of those that end at
// the same byte the one that begins first. So the result does not depend on how the text is cut into pieces.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);  // empty ones are left out
  // Returns the text that may be sent now. After a match `stopped()` is true, the text before the match has
  // been returned, and further input is ignored.
  std::string push(std::string_view text);
  // The end of the stream: what was held back.
  std::string finish();
  bool stopped() const { return stopped_; }
  const std::string& matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string matched_;
  bool stopped_ = false;
};

}  // namespace snug::text
