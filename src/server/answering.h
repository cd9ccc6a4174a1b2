// From a parsed request to its answer, whole or streamed, however an API words it.
#pragma once

#include <memory>
#include <string>

#include "llm/async_llm.h"
#include "server/route.h"
#include "server/service.h"

namespace snug::server {

// One answer in an API's words; used from the connection's thread.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // The server-sent events of an update, ready to send, the ones that end the stream with its last; an error
  // in an update becomes an event. first_events() once before any.
  virtual std::string first_events() = 0;
  virtual std::string events(const llm::Update& update) = 0;
  // For an answer in one piece: add() every update, then whole().
  virtual void add(const llm::Update& update) = 0;
  virtual std::string whole() = 0;
};

// How a request is to be answered.
struct Answering {
  std::shared_ptr<AnswerWriter> writer;
  bool stream = false;
  Headers headers;  // of the answer
  HttpReply (*fault)(const ApiError&) = [](const ApiError& error) { return error.to_reply(); };
};

// Hands `request` to the model and its updates to the writer. A full queue is 429, a server that stops 503.
// Until the first token a fault has its own status. Where the client goes, the request is cancelled.
void answer(const Service& service, const Call& call, llm::GenerateRequest request, Answering how);

// "X-Ignored-Fields" for names of the body that nobody read: what a caller misspelt is said, not dropped.
Headers ignored_fields(const std::vector<std::string>& names);

Result<OrderedJson> parse_body(const HttpRequest& request);

}  // namespace snug::server
