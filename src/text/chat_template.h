// Chat templates: the part of Jinja that model templates use, bounded in time, depth and output.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace snug::text {

struct TemplateLimits {
  std::int64_t max_steps = 2'000'000;    // evaluated nodes; a template that loops ends here
  std::int64_t max_output = 64ll << 20;  // bytes, also for any one string value
  int max_depth = 64;                    // nesting of blocks, expressions, calls and values
  std::int64_t max_source = 1ll << 20;   // bytes of the template itself
};

// Renders as transformers' apply_chat_template does (trim_blocks, lstrip_blocks, tojson without ASCII
// escapes, raise_exception, strftime_now, namespace, loop, …). Immutable; render may be called from several
// threads.
class ChatTemplate {
 public:
  // bad_file "NAME: line L: …" if the template does not parse.
  static Result<ChatTemplate> parse(std::string_view source, std::string_view name,
                                    TemplateLimits limits = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `variables` is an object: messages, tools, add_generation_prompt, bos_token, eos_token, and any others.
  // usage error where the template raises or the messages do not suit it; the message is the template's own.
  Result<std::string> render(const OrderedJson& variables) const;

  // Whether the template takes `content` as a list of parts (found by rendering such a message); if not, give
  // normalize_messages keep_parts = false.
  bool walks_content_parts() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Brings OpenAI-style messages to the form templates expect, so that what people send always appears:
// `content` as a list of text parts becomes one string where the template does not walk parts itself
// (keep_parts false); content null becomes ""; tool_calls[].function.arguments given as a JSON string is
// decoded once, and a string that is not JSON stays as it is. usage error (naming messages[i].field) for what
// is not a message.
Result<OrderedJson> normalize_messages(const OrderedJson& messages, bool keep_parts);

}  // namespace snug::text
