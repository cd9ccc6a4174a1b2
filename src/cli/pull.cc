// snug pull ID: fetches a model from a hub into the cache, resumable and checksummed.
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/hub.h"
#include "cli/terminal.h"

namespace snug::cli {
namespace {

struct PullFlags {
  OutputFlags output;
  std::string id, revision = "main", endpoint, token;
  std::vector<std::string> include;
};

// The flag, else the variable that the hub's own tools read, else the default.
std::string first_of(const std::string& flag, const char* variable, const char* otherwise) {
  if (!flag.empty()) return flag;
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

Status run_pull(const PullFlags& flags) {
  PullOptions options;
  options.endpoint = first_of(flags.endpoint, "HF_ENDPOINT", "https://huggingface.co");
  options.repo = flags.id;
  options.revision = flags.revision;
  options.token = first_of(flags.token, "HF_TOKEN", "");
  options.cache_dir = hub_cache_dir();
  options.include = flags.include;

  const bool show = !flags.output.quiet && stderr_is_terminal();
  std::string current;
  std::optional<ProgressBar> bar;
  options.progress = [&](const std::string& file, std::int64_t done, std::int64_t total) {
    if (file != current) {
      current = file;
      bar.emplace(file, show);
    }
    bar->update(done, total);
  };
  const auto path = pull(options);
  bar.reset();  // clears its line before anything else is printed
  if (!path) return path.error();
  if (flags.output.json) {
    const Json out = {{"path", path->string()}, {"id", flags.id}, {"revision", flags.revision}};
    std::cout << json_line(out) << std::endl;
  } else {
    std::cout << path->string() << std::endl;
  }
  return {};
}

}  // namespace

Command pull_command() {
  return {"pull", "Fetch a model from a hub", [](CLI::App& app) -> Runner {
            auto flags = std::make_shared<PullFlags>();
            app.add_option("ID", flags->id, "org/name, e.g. Qwen/Qwen2.5-0.5B-Instruct")->required();
            app.add_option("--revision", flags->revision, "branch, tag or commit (default: main)");
            app.add_option(
                   "--include", flags->include,
                   "shell pattern of files to fetch, repeatable; needed for repositories of GGUF files")
                ->allow_extra_args(false);
            app.add_option("--endpoint", flags->endpoint,
                           "address of the hub (default: $HF_ENDPOINT, else https://huggingface.co)");
            app.add_option("--token", flags->token,
                           "access token for private and gated models (default: $HF_TOKEN)");
            flags->output.add(app);
            return [flags] { return run_pull(*flags); };
          }};
}

}  // namespace snug::cli
