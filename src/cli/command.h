// A command of the program: its flags, and what runs once they are parsed. One file each.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace snug::cli {

// Does the work. Results go to stdout, logs and progress to stderr. The error's code is the exit code.
using Runner = std::function<Status()>;

struct Command {
  std::string name;
  std::string description;
  std::function<Runner(CLI::App& app)>
      define;  // adds the flags to `app`; the runner owns what they are parsed into
};

Command run_command();
Command chat_command();
Command eval_command();
Command tokenize_command();
Command inspect_command();
Command bench_command();
Command pull_command();
Command serve_command();

std::vector<Command> all_commands();

}  // namespace snug::cli
