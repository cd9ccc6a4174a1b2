#include "server/http_server.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast.hpp>
#include <deque>
#include <random>
#include <thread>

namespace snug::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using std::chrono::steady_clock;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

std::string new_id() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}{:08x}", random(), static_cast<std::uint32_t>(random()));
}

// What the routes have put out and the connection has not sent. Touched on the connection's strand only.
class Outbox final : public Exchange, public std::enable_shared_from_this<Outbox> {
 public:
  Outbox(asio::any_io_executor strand, HttpRequest request)
      : strand_(strand), ready_(strand), request_(std::move(request)) {
    ready_.expires_at(steady_clock::time_point::max());
  }

  const HttpRequest& request() const override { return request_; }
  void reply(HttpReply reply) override {
    put([this, reply = std::move(reply)]() mutable {
      head_ = std::move(reply);
      ended_ = true;
    });
  }
  void begin_stream(std::string content_type, Headers headers) override {
    put([this, type = std::move(content_type), headers = std::move(headers)]() mutable {
      head_ = HttpReply{200, std::move(type), "", std::move(headers)};
      streams_ = true;
    });
  }
  void send(std::string piece) override {
    put([this, piece = std::move(piece)]() mutable {
      if (!piece.empty()) pieces_.push_back(std::move(piece));
    });
  }
  void end_stream() override {
    put([this] { ended_ = true; });
  }
  void on_close(std::function<void()> called) override { closed_call_ = std::move(called); }
  void post(std::function<void()> work) override {
    asio::post(strand_, [self = shared_from_this(), work = std::move(work)] {
      if (!self->closed_) work();
    });
  }

  // Waits until there is something to send, the answer has ended or the client has gone.
  asio::awaitable<void> wait() {
    while (!closed_ && !ended_ && pieces_.empty() && (!head_ || head_taken_)) {
      co_await ready_.async_wait(kTuple);
      ready_.expires_at(steady_clock::time_point::max());
    }
  }
  std::optional<HttpReply> take_head() {
    if (!head_ || head_taken_) return std::nullopt;
    head_taken_ = true;
    return std::move(head_);
  }
  std::string take_pieces() {
    std::string all;
    for (const std::string& piece : pieces_) all += piece;
    pieces_.clear();
    return all;
  }
  bool streams() const { return streams_; }
  bool ended() const { return ended_ && pieces_.empty(); }
  bool closed() const { return closed_; }
  void close() {
    if (closed_) return;
    closed_ = true;
    ready_.cancel();
    if (!ended_ && closed_call_) closed_call_();
    closed_call_ = nullptr;
  }
  void done() {
    done_ = true;
    closed_call_ = nullptr;
  }
  bool is_done() const { return done_; }

 private:
  template <class Change>
  void put(Change change) {
    asio::dispatch(strand_, [self = shared_from_this(), change = std::move(change)]() mutable {
      if (self->closed_ || self->ended_) return;
      change();
      self->ready_.cancel();
    });
  }

  asio::any_io_executor strand_;
  asio::steady_timer ready_;
  HttpRequest request_;
  std::optional<HttpReply> head_;
  std::deque<std::string> pieces_;
  bool head_taken_ = false, streams_ = false, ended_ = false, closed_ = false, done_ = false;
  std::function<void()> closed_call_;
};

class BeastServer final : public HttpServer {
 public:
  BeastServer(HttpOptions options, Handler handler)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        io_(options_.threads),
        acceptor_(asio::make_strand(io_)),
        drained_(acceptor_.get_executor()) {}

  Status open() {
    boost::system::error_code error;
    const auto address =
        asio::ip::make_address(options_.host == "localhost" ? "127.0.0.1" : options_.host, error);
    if (error) {
      return Error{ErrorCode::usage, fmt::format("--host {}: is not an address", options_.host),
                   "give an IP address, as 127.0.0.1 or 0.0.0.0"};
    }
    const tcp::endpoint endpoint(address, options_.port);
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(4096, error);
    if (error) {
      return Error{
          ErrorCode::usage,
          fmt::format("{}:{} cannot be listened on: {}", options_.host, options_.port, error.message()),
          "choose another with --host and --port"};
    }
    port_ = acceptor_.local_endpoint().port();
    return {};
  }

  std::uint16_t port() const override { return port_; }

  void run() override {
    asio::co_spawn(acceptor_.get_executor(), accept(), asio::detached);
    std::vector<std::thread> others;
    for (int i = 1; i < options_.threads; ++i) others.emplace_back([this] { io_.run(); });
    io_.run();
    for (auto& thread : others) thread.join();
  }

  void stop(std::chrono::seconds grace) override {
    asio::co_spawn(acceptor_.get_executor(), drain(steady_clock::now() + grace), asio::detached);
  }

 private:
  asio::awaitable<void> accept() {
    while (acceptor_.is_open()) {
      auto [error, socket] = co_await acceptor_.async_accept(asio::make_strand(io_), kTuple);
      if (error == asio::error::operation_aborted || !acceptor_.is_open()) co_return;
      if (error) {
        // Out of descriptors, most likely: those that end give some back.
        drained_.expires_after(std::chrono::milliseconds(100));
        co_await drained_.async_wait(kTuple);
        continue;
      }
      const auto strand = socket.get_executor();
      asio::co_spawn(strand, session(beast::tcp_stream(std::move(socket))), asio::detached);
    }
  }

  asio::awaitable<void> drain(steady_clock::time_point deadline) {
    draining_ = true;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    while (exchanges_ > 0 && steady_clock::now() < deadline) {
      drained_.expires_after(std::chrono::milliseconds(20));
      co_await drained_.async_wait(kTuple);
    }
    io_.stop();
  }

  // What to say to a client whose request could not be read; nothing where it has gone, or kept an idle
  // connection until the time was over.
  std::optional<HttpReply> fault_of(const boost::system::error_code& error, bool begun) const {
    if (error == http::error::end_of_stream || error == http::error::partial_message) return std::nullopt;
    if (error == http::error::header_limit) {
      return options_.fault(431, fmt::format("the head is larger than {} bytes", options_.header_limit));
    }
    if (error == http::error::body_limit) {
      return options_.fault(413, fmt::format("the body is larger than {} bytes", options_.body_limit));
    }
    if (error == beast::error::timeout && begun) return options_.fault(408, "the body did not come in time");
    if (error.category() == make_error_code(http::error::bad_method).category()) {
      return options_.fault(400, "this is not HTTP: " + error.message());
    }
    return std::nullopt;
  }

  static HttpRequest request_of(http::request<http::string_body> message) {
    HttpRequest request{
        .method = std::string(message.method_string()), .body = std::move(message.body()), .id = new_id()};
    const std::string target(message.target());
    request.path = target.substr(0, target.find('?'));
    for (const auto& field : message) {
      std::string name(field.name_string());
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
      request.headers.emplace(std::move(name), std::string(field.value()));
    }
    return request;
  }

  // A reply that the handler has no part in; the connection closes after it.
  asio::awaitable<void> refuse(beast::tcp_stream& stream, std::optional<HttpReply> reply) {
    if (!reply) co_return;
    co_await write_reply(stream, std::move(*reply), 11, false, "");
    // Let the client read it: closing with unread input would reset the connection.
    boost::system::error_code ignored;
    stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream.expires_after(std::chrono::seconds(2));
    std::array<char, 16384> rest;
    for (std::size_t read = 0; read < (16u << 20);) {
      auto [error, n] = co_await stream.async_read_some(asio::buffer(rest), kTuple);
      if (error) break;
      read += n;
    }
  }

  http::response<http::string_body> to_beast(HttpReply reply, unsigned version, bool keep_alive,
                                             const std::string& id) const {
    http::response<http::string_body> response(static_cast<http::status>(reply.status), version);
    response.set(http::field::content_type, reply.content_type);
    if (!id.empty()) response.set("X-Request-Id", id);
    for (const auto& [name, value] : options_.headers) response.set(name, value);
    for (const auto& [name, value] : reply.headers) response.set(name, value);
    response.keep_alive(keep_alive);
    response.body() = std::move(reply.body);
    return response;
  }

  asio::awaitable<bool> write_reply(beast::tcp_stream& stream, HttpReply reply, unsigned version,
                                    bool keep_alive, std::string id) {
    auto response = to_beast(std::move(reply), version, keep_alive, id);
    response.prepare_payload();
    stream.expires_after(options_.write_timeout);
    auto [error, n] = co_await http::async_write(stream, response, kTuple);
    co_return !error;
  }

  asio::awaitable<bool> write_head(beast::tcp_stream& stream, HttpReply reply, unsigned version,
                                   bool keep_alive, std::string id) {
    auto response = to_beast(std::move(reply), version, keep_alive, id);
    response.set(http::field::cache_control, "no-cache");
    response.chunked(version == 11);
    http::response_serializer<http::string_body> serializer(response);
    stream.expires_after(options_.write_timeout);
    auto [error, n] = co_await http::async_write_header(stream, serializer, kTuple);
    co_return !error;
  }

  asio::awaitable<bool> write_piece(beast::tcp_stream& stream, std::string piece, bool chunked) {
    stream.expires_after(options_.write_timeout);
    const asio::const_buffer bytes(piece.data(), piece.size());
    if (chunked) {
      auto [error, n] = co_await asio::async_write(stream, http::make_chunk(bytes), kTuple);
      co_return !error;
    }
    auto [error, n] = co_await asio::async_write(stream, bytes, kTuple);
    co_return !error;
  }

  // Tells `outbox` when the client closes its side while an answer is under way. Bytes that arrive are the
  // next request's and wait in the socket.
  static void watch(beast::tcp_stream& stream, const std::shared_ptr<Outbox>& outbox,
                    const std::shared_ptr<asio::cancellation_signal>& unwatch) {
    tcp::socket& socket = stream.socket();
    socket.async_wait(
        tcp::socket::wait_read,
        asio::bind_cancellation_slot(
            unwatch->slot(), [&socket, outbox, unwatch](const boost::system::error_code& error) {
              // Once it is done the socket may be gone.
              if (error == asio::error::operation_aborted || outbox->is_done()) return;
              char byte = 0;
              const auto got = ::recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
              if (error || got == 0 || (got < 0 && errno != EAGAIN)) outbox->close();
            }));
  }

  // Sends what the handler puts out; whether the connection may be used again.
  asio::awaitable<bool> answer(beast::tcp_stream& stream, std::shared_ptr<Outbox> outbox, unsigned version,
                               bool keep_alive) {
    auto unwatch = std::make_shared<asio::cancellation_signal>();
    watch(stream, outbox, unwatch);
    const std::string id = outbox->request().id;
    const bool chunked = version == 11;
    bool good = true;
    while (good && !outbox->closed()) {
      co_await outbox->wait();
      if (outbox->closed()) break;
      if (auto head = outbox->take_head()) {
        if (outbox->streams()) {
          good = co_await write_head(stream, std::move(*head), version, keep_alive && chunked, id);
        } else {
          good = co_await write_reply(stream, std::move(*head), version, keep_alive, id);
          break;
        }
        continue;
      }
      const std::string pieces = outbox->take_pieces();
      if (!pieces.empty()) good = co_await write_piece(stream, pieces, chunked);
      if (good && outbox->ended()) {
        if (chunked) {
          auto [error, n] = co_await asio::async_write(stream, http::make_chunk_last(), kTuple);
          good = !error;
        }
        break;
      }
    }
    unwatch->emit(asio::cancellation_type::all);
    if (!good) outbox->close();
    outbox->done();
    co_return good && !outbox->closed() && keep_alive && (chunked || !outbox->streams());
  }

  asio::awaitable<void> session(beast::tcp_stream stream) {
    struct Counted {
      std::atomic<std::int64_t>& count;
      explicit Counted(std::atomic<std::int64_t>& c) : count(c) { ++count; }
      ~Counted() { --count; }
    };
    const Counted connection(connections_);
    boost::system::error_code ignored;
    stream.socket().set_option(tcp::no_delay(true), ignored);
    if (connections_ > options_.max_connections) {
      co_await refuse(stream, options_.fault(503, "too many connections"));
      co_return;
    }
    beast::flat_buffer buffer;
    for (bool again = true; again && !draining_;) {
      http::request_parser<http::string_body> parser;
      parser.header_limit(options_.header_limit);
      parser.body_limit(options_.body_limit);
      stream.expires_after(options_.request_timeout);
      auto [head_error, head_bytes] = co_await http::async_read_header(stream, buffer, parser, kTuple);
      if (!head_error && parser.content_length().value_or(0) > options_.body_limit) {
        head_error = http::error::body_limit;
      }
      if (head_error) {
        co_await refuse(stream, fault_of(head_error, parser.is_header_done()));
        break;
      }
      if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
        const http::response<http::empty_body> go_on(http::status::continue_, 11);
        auto [error, n] = co_await http::async_write(stream, go_on, kTuple);
        if (error) break;
      }
      stream.expires_after(options_.request_timeout);
      auto [body_error, body_bytes] = co_await http::async_read(stream, buffer, parser, kTuple);
      if (body_error) {
        co_await refuse(stream, fault_of(body_error, true));
        break;
      }
      stream.expires_never();
      const bool keep_alive = parser.keep_alive() && !draining_;
      const unsigned version = parser.get().version() == 10 ? 10 : 11;
      const Counted exchange(exchanges_);
      auto outbox = std::make_shared<Outbox>(stream.get_executor(), request_of(parser.release()));
      try {
        handler_(outbox);
      } catch (const std::exception& e) {
        outbox->reply(options_.fault(500, e.what()));
      }
      again = co_await answer(stream, outbox, version, keep_alive);
    }
    stream.socket().shutdown(tcp::socket::shutdown_both, ignored);
  }

  HttpOptions options_;
  Handler handler_;
  std::atomic<std::int64_t> connections_ = 0, exchanges_ = 0;  // coroutines that io_ ends count down
  asio::io_context io_;
  tcp::acceptor acceptor_;
  asio::steady_timer drained_;
  std::uint16_t port_ = 0;
  std::atomic<bool> draining_ = false;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(HttpOptions options, Handler handler) {
  auto server = std::make_unique<BeastServer>(std::move(options), std::move(handler));
  SNUG_TRY(server->open());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace snug::server
