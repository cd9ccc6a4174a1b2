// Flags from the environment and from --config FILE.json. Order: flag, environment, file, default.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace snug::cli {

using GetEnv = std::function<const char*(const std::string& name)>;

// The command line with what it does not say added from SNUG_<FLAG> (--max-tokens: SNUG_MAX_TOKENS) and from
// the keys of --config ("max-tokens" or "max_tokens"). `args` begins with the command's name. Unknown keys of
// the file are a usage error that names them.
Result<std::vector<std::string>> complete_arguments(const CLI::App& app, std::vector<std::string> args,
                                                    const GetEnv& env);

}  // namespace snug::cli
