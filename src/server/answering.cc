#include "server/answering.h"

#include <algorithm>
#include <utility>

namespace snug::server {

void answer(const Service& service, const Call& call, llm::GenerateRequest request, Answering how) {
  const auto& exchange = call.exchange;
  const auto fault = how.fault;
  // The head of a stream waits for the first token: until then a fault can still have its own status.
  const auto begun = std::make_shared<bool>(false);
  const auto ticket = service.llm.submit(
      std::move(request),
      [exchange, begun, how = std::make_shared<const Answering>(std::move(how))](llm::Update update) {
        // JSON is made on the connection's thread: the model's has the next step to run.
        exchange->post([exchange, begun, how, update = std::move(update)] {
          if (update.error && !*begun) return exchange->reply(how->fault(api_error(*update.error)));
          if (!how->stream) {
            how->writer->add(update);
            if (update.usage) exchange->reply({.body = how->writer->whole(), .headers = how->headers});
            return;
          }
          if (!*begun) {
            *begun = true;
            exchange->begin_stream("text/event-stream", how->headers);
            exchange->send(how->writer->first_events());
          }
          exchange->send(how->writer->events(update));
          if (update.usage) exchange->end_stream();
        });
      });
  if (!ticket) {
    const bool full = service.llm.accepts();
    return call.reply(
        fault({full ? 429 : 503, full ? "the queue is full: try again later" : "the server is shutting down",
               "", full ? "queue_full" : "shutting_down"}));
  }
  exchange->on_close([&llm = service.llm, ticket = *ticket] { llm.cancel(ticket); });
}

Headers ignored_fields(const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::string all;
  for (const std::string& name : names) {
    std::string clean = name.substr(0, 64);
    std::ranges::replace_if(
        clean, [](unsigned char c) { return c < 0x21 || c > 0x7e || c == ','; }, '?');
    all += (all.empty() ? "" : ", ") + clean;
    if (all.size() > 512) break;
  }
  return {{"X-Ignored-Fields", all}};
}

Result<OrderedJson> parse_body(const HttpRequest& request) {
  return parse_ordered_json(request.body, "the body", ErrorCode::usage);
}

}  // namespace snug::server
