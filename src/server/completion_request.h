// The bodies of /v1/chat/completions and /v1/completions.
//
// Source: the OpenAI API reference, and vLLM's sampling fields beside it (top_k, min_p, repetition_penalty,
// ignore_eos).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "llm/generation.h"
#include "llm/skeleton.h"
#include "server/api_error.h"

namespace snug::server {

struct CompletionRequest {
  bool chat = true;
  std::string model;  // as the caller wrote it; empty if not
  llm::GenerateRequest generate;
  bool stream = false;
  bool include_usage = false;
  std::string echo;                  // text that begins each answer
  std::vector<std::string> unknown;  // fields that were ignored
};

struct ModelLimits {
  std::int64_t max_model_len = 0;  // tokens
  int max_n = 8;
};

// Values that a request leaves out are the checkpoint's (generation_config.json). max_tokens that passes the
// context's end is clamped; without one, the answer may fill the context.
std::variant<CompletionRequest, ApiError> parse_chat_request(const OrderedJson& body,
                                                             const llm::Skeleton& skeleton,
                                                             const ModelLimits& limits);
std::variant<CompletionRequest, ApiError> parse_text_request(const OrderedJson& body,
                                                             const llm::Skeleton& skeleton,
                                                             const ModelLimits& limits);

}  // namespace snug::server
