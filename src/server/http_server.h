// HTTP/1.1 over TCP on Boost.Beast: connections, limits and timeouts. What is answered is the handler's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "server/http.h"

namespace snug::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;  // 0: any free one
  int threads = 2;
  std::uint32_t header_limit = 32 << 10;
  std::uint64_t body_limit = 64ull << 20;
  std::int64_t max_connections = 20'000;
  std::chrono::seconds request_timeout{60};  // for a whole head, and again for a whole body; idle ones close
  std::chrono::seconds write_timeout{60};    // for each piece: a client that does not read is gone after it
  Headers headers;                           // of every answer
  // Makes the reply to what never reaches the handler: 400, 408, 413, 431, 500, 503.
  std::function<HttpReply(int status, const std::string& message)> fault;
};

class HttpServer {
 public:
  // usage error where the address cannot be had.
  static Result<std::unique_ptr<HttpServer>> listen(HttpOptions options, Handler handler);
  virtual ~HttpServer() = default;

  virtual std::uint16_t port() const = 0;
  // Serves until stop(); the calling thread is one of options.threads.
  virtual void run() = 0;
  // Takes no more connections, lets exchanges end for at most `grace`, then run() returns. Any thread.
  virtual void stop(std::chrono::seconds grace) = 0;
};

}  // namespace snug::server
