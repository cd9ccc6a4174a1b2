// Errors as the OpenAI API words them: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <string>

#include "base/error.h"
#include "server/http.h"

namespace snug::server {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // the field at fault; empty: null
  std::string code;   // as "model_not_found"; empty: null

  // By status, as "invalid_request_error".
  std::string type() const;
  std::string to_json() const;
  HttpReply to_reply() const;
};

// 400 for what the caller can mend, 500 for the rest.
ApiError api_error(const Error& error);

}  // namespace snug::server
