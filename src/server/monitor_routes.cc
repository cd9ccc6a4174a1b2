// What watches the server asks.
#include "server/json_text.h"
#include "server/service.h"

namespace snug::server {
namespace {

HttpReply health(const Service& service) {
  const llm::AsyncStats stats = service.llm.stats();
  const bool stalled = stats.seconds_since_progress > service.options.stalled_after_s;
  const bool ready = service.llm.accepts() && !stalled;
  OrderedJson json = {{"status", stalled ? "stalled"
                                 : ready ? "ok"
                                         : "draining"},
                      {"live", !stalled},
                      {"ready", ready},
                      {"requests", stats.requests},
                      {"running", stats.running},
                      {"waiting", stats.waiting},
                      {"seconds_since_progress", stats.seconds_since_progress}};
  if (service.options.memory_report) json["memory"] = service.options.memory_report();
  return {.status = ready ? 200 : 503, .body = to_text(json)};
}

}  // namespace

std::vector<Route> monitor_routes(const Service& service) {
  return {{"GET", "/health", [&](const Call& call) { call.reply(health(service)); }, Access::open}};
}

}  // namespace snug::server
