#include "cli/app.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <map>

#include "cli/command.h"
#include "cli/settings.h"
#include "cli/terminal.h"

namespace snug::cli {

std::vector<Command> all_commands() {
  return {run_command(),     chat_command(),  eval_command(), tokenize_command(),
          inspect_command(), bench_command(), pull_command(), serve_command()};
}

namespace {

// Known before the flags are parsed: their faults are reported as JSON too.
bool asks_for_json(const std::vector<std::string>& args) {
  return std::ranges::any_of(
      args, [](const auto& arg) { return arg == "--json" || arg == "--json=true" || arg == "--json=1"; });
}

}  // namespace

int run_app(int argc, char** argv) {
  CLI::App app("Snug runs Qwen2.5 inside the memory you have.", "snug");
  app.set_version_flag("--version", "snug 0.1.0");
  app.require_subcommand(1);
  std::map<const CLI::App*, Runner> runners;
  for (const auto& command : all_commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.description);
    runners[sub] = command.define(*sub);
  }

  std::vector<std::string> args(argv + 1, argv + argc);
  bool json = asks_for_json(args);
  const auto fail = [&json](const Error& error) {
    print_error(error);
    if (json) print_json_error(error);
    return static_cast<int>(error.code);
  };
  if (!args.empty() && !args[0].starts_with('-') &&
      std::ranges::none_of(runners, [&](const auto& r) { return r.first->get_name() == args[0]; })) {
    return fail({ErrorCode::usage, args[0] + " is not a command", "snug --help lists them"});
  }
  auto completed = complete_arguments(app, std::move(args),
                                      [](const std::string& name) { return std::getenv(name.c_str()); });
  if (!completed) return fail(completed.error());
  json = json || asks_for_json(*completed);  // from the environment or the file
  try {
    std::reverse(completed->begin(), completed->end());  // as CLI11 wants them
    app.parse(*std::move(completed));
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    return fail(
        {ErrorCode::usage, e.what(), "snug --help, or snug COMMAND --help, shows what is understood"});
  }
  try {
    const Status status = runners.at(app.get_subcommands().front())();
    return status ? 0 : fail(status.error());
  } catch (const std::bad_alloc&) {
    return fail({ErrorCode::failed, "the system refused memory", "ask for less, or free memory"});
  } catch (const std::exception& e) {
    return fail({ErrorCode::failed, std::string("unexpected: ") + e.what(),
                 "this is a fault in Snug: please report it"});
  }
}

}  // namespace snug::cli
