// snug serve MODEL: the HTTP server.
#include <fmt/format.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <thread>

#include "base/bytes.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "llm/async_llm.h"
#include "server/api_error.h"
#include "server/http_server.h"
#include "server/router.h"
#include "server/service.h"

namespace snug::cli {
namespace {

constexpr std::int64_t kDefaultContext = 8192;
// Threads, connections and what is said on them.
constexpr std::int64_t kServerBytes = 64 << 20;

struct ServeFlags {
  OutputFlags output;
  ModelFlags model;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::vector<std::string> names, api_keys;
  std::string allowed_origin;
  std::int64_t max_queue = 256;
  std::string body_limit = "64MiB";
  int grace_s = 30;

  void add(CLI::App& app) {
    model.max_num_seqs = 8;
    model.add(app);
    app.add_option("--host", host, "address to listen on; 0.0.0.0 for all");
    app.add_option("--port", port, "0 takes any free one")->check(CLI::Range(0, 65535));
    app.add_option("--served-model-name", names, "the model's names in the API; the file's name if none");
    app.add_option("--api-key", api_keys, "asked of every request but /health; repeatable");
    app.add_option("--allowed-origin", allowed_origin,
                   "for pages of other sites, as https://example.org or *");
    app.add_option("--max-queue", max_queue, "requests that may wait; those beyond get 429")
        ->check(CLI::Range(0, 1'000'000));
    app.add_option("--max-body", body_limit, "largest request")->type_name("SIZE");
    app.add_option("--grace", grace_s, "seconds that running requests get when the server is told to stop")
        ->check(CLI::Range(0, 3600));
    output.add(app);
  }
};

// SIGTERM and SIGINT are waited for by a thread: blocked in all of them before any is made.
sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Each connection takes a descriptor.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::string default_name(const std::string& model) {
  std::filesystem::path path(model);
  if (!path.has_filename()) path = path.parent_path();
  return path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
}

Status serve(const ServeFlags& flags) {
  SNUG_ASSIGN(llm::Skeleton skeleton, flags.model.open(flags.output));
  SNUG_ASSIGN(auto options, flags.model.load_options(skeleton));
  if (!options.wishes.max_model_len) {
    options.wishes.max_model_len = std::min(kDefaultContext, skeleton.config.max_positions);
  }
  options.server_bytes = kServerBytes;
  SNUG_ASSIGN(const std::int64_t body_limit, parse_bytes(flags.body_limit));
  std::unique_ptr<server::Service> service;
  std::unique_ptr<server::Router> router;
  server::HttpOptions http{.host = flags.host,
                           .port = static_cast<std::uint16_t>(flags.port),
                           .body_limit = static_cast<std::uint64_t>(body_limit),
                           .fault = [](int status, const std::string& message) {
                             return server::ApiError{status, message, "", ""}.to_reply();
                           }};
  if (!flags.allowed_origin.empty()) http.headers = {{"Access-Control-Allow-Origin", flags.allowed_origin}};
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  raise_descriptor_limit();
  // Before the model: an address that cannot be had is known at once.
  SNUG_ASSIGN(const auto http_server,
              server::HttpServer::listen(http, [&](const std::shared_ptr<server::Exchange>& exchange) {
                router->handle(exchange);
              }));

  ProgressBar bar("Loading", !flags.output.quiet);
  options.progress = [&](std::int64_t done, std::int64_t total) { bar.update(done, total); };
  SNUG_ASSIGN(auto model, llm::LLM::load(std::move(skeleton), options));
  bar.clear();
  llm::AsyncLLM llm(std::move(model), {.max_queue = flags.max_queue});
  server::ServiceOptions service_options{.names = flags.names,
                                         .memory_report = [&llm] { return memory_report(llm.llm()); }};
  if (service_options.names.empty()) service_options.names.push_back(default_name(flags.model.model));
  service.reset(new server::Service{llm, service_options});
  router = std::make_unique<server::Router>(server::all_routes(*service), flags.api_keys);

  print_note(
      fmt::format("{} listens on http://{}:{}", service_options.names[0], flags.host, http_server->port()));
  std::thread waiter([&] {
    int signal = 0;
    sigwait(&signals, &signal);
    print_note("stopping: requests that run may end");
    llm.stop_accepting();
    http_server->stop(std::chrono::seconds(flags.grace_s));
  });
  http_server->run();
  waiter.join();
  return {};
}

}  // namespace

Command serve_command() {
  return {"serve", "A server with the OpenAI API", [](CLI::App& app) -> Runner {
            auto flags = std::make_shared<ServeFlags>();
            flags->add(app);
            return [flags] { return serve(*flags); };
          }};
}

}  // namespace snug::cli
