// HTTP as the routes see it: a request, and an exchange to answer it through. No socket in here.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace snug::server {

struct HttpRequest {
  std::string method;                          // "POST"
  std::string path;                            // "/v1/models", without the query
  std::map<std::string, std::string> headers;  // names in lower case; of equal ones the first
  std::string body;
  std::string id;  // unique, also in the answer's X-Request-Id

  std::string header(const std::string& name) const {
    const auto it = headers.find(name);
    return it == headers.end() ? "" : it->second;
  }
};

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  Headers headers;
};

// One request and its answer: reply() once, or begin_stream(), send()…, end_stream(). May be used from any
// thread and after the client has gone, when it does nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  virtual void reply(HttpReply reply) = 0;
  virtual void begin_stream(std::string content_type, Headers headers) = 0;
  virtual void send(std::string piece) = 0;
  virtual void end_stream() = 0;
  // Called once if the client goes before the answer has ended. To be set before the handler returns.
  virtual void on_close(std::function<void()> called) = 0;
  // Runs `work` on the connection's thread, in order.
  virtual void post(std::function<void()> work) = 0;
};

using Handler = std::function<void(const std::shared_ptr<Exchange>&)>;

}  // namespace snug::server
