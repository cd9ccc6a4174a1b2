#include "text/stream_decoder.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace snug::text {

std::string StreamDecoder::push(TokenId id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  pending_.append(tokenizer_->token_bytes(id));
  std::string text;
  pending_.erase(0, utf8_append_replaced(pending_, false, text));
  return text;
}

std::string StreamDecoder::finish() {
  // What is pending is the beginning of a character that never came: as U+FFFD it would be noise in the
  // answer.
  pending_.clear();
  return {};
}

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, std::string());
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped_) return {};
  held_.append(text);
  // The match that ends first; of those that end there the one that begins first.
  std::size_t begin = 0, end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t found = held_.find(stop);
    if (found == std::string::npos) continue;
    const std::size_t found_end = found + stop.size();
    if (found_end < end || (found_end == end && found < begin)) {
      begin = found;
      end = found_end;
      matched_ = stop;
    }
  }
  if (end != std::string::npos) {
    stopped_ = true;
    std::string out = held_.substr(0, begin);
    held_.clear();
    return out;
  }
  // Keep the longest suffix that may become a match.
  std::size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t size = std::min(stop.size() - 1, held_.size()); size > keep; --size) {
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, size))) {
        keep = size;
        break;
      }
    }
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopMatcher::finish() {
  return std::exchange(held_, {});
}

}  // namespace snug::text
