#include "cli/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "base/file.h"
#include "base/json.h"

namespace snug::cli {
namespace {

constexpr std::size_t kMaxConfigBytes = 1 << 20;

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  for (const auto* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_name() == name) return sub;
  }
  return nullptr;
}

// The value of an option on the command line, where it is given as --name VALUE or --name=VALUE.
std::optional<std::string> given(const std::vector<std::string>& args, const CLI::Option& option) {
  for (std::size_t i = 1; i < args.size(); ++i) {
    if (args[i] == "--") break;
    for (const auto& name : option.get_lnames()) {
      if (args[i] == "--" + name) return i + 1 < args.size() ? args[i + 1] : "";
      if (args[i].starts_with("--" + name + "=")) return args[i].substr(name.size() + 3);
    }
    for (const auto& name : option.get_snames()) {
      if (args[i].starts_with("-" + name) && !args[i].starts_with("--")) return "";
    }
  }
  return std::nullopt;
}

// "--stop=" as two words: CLI11 would take the word after it for the value.
std::vector<std::string> with_empty_values_apart(const std::vector<std::string>& args,
                                                 const std::vector<const CLI::Option*>& options) {
  std::vector<std::string> words;
  for (const auto& arg : args) {
    const bool empty_value =
        arg.starts_with("--") && arg.ends_with("=") &&
        std::ranges::any_of(options, [&](const CLI::Option* option) {
          return option->get_expected_min() > 0 && option->check_lname(arg.substr(2, arg.size() - 3));
        });
    words.push_back(empty_value ? arg.substr(0, arg.size() - 1) : arg);
    if (empty_value) words.emplace_back();
  }
  return words;
}

std::string variable_of(std::string flag) {
  std::transform(flag.begin(), flag.end(), flag.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : std::toupper(c); });
  return "SNUG_" + flag;
}

Result<std::vector<std::string>> values_of(const Json& value, const std::string& file,
                                           const std::string& key) {
  if (value.is_array()) {
    std::vector<std::string> all;
    for (const auto& element : value) {
      SNUG_ASSIGN(auto some, values_of(element, file, key));
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
  if (value.is_string()) return std::vector{value.get<std::string>()};
  if (value.is_boolean() || value.is_number()) return std::vector{value.dump()};
  return Error{ErrorCode::usage, fmt::format("{}: {} must be a text, a number, true or false", file, key),
               "correct it in that file"};
}

}  // namespace

Result<std::vector<std::string>> complete_arguments(const CLI::App& app, std::vector<std::string> args,
                                                    const GetEnv& env) {
  if (args.empty()) return args;
  const CLI::App* command = find_command(app, args[0]);
  if (command == nullptr) return args;
  const auto options = command->get_options();

  Json file = Json::object();
  std::string file_name;
  for (const auto* option : options) {
    if (!option->check_lname("config")) continue;
    const char* from_env = env("SNUG_CONFIG");
    file_name = given(args, *option).value_or(from_env != nullptr ? from_env : "");
    if (file_name.empty()) break;
    SNUG_ASSIGN(const std::string text, read_text_file(file_name, kMaxConfigBytes));
    SNUG_ASSIGN(file, parse_json(text, file_name));
    if (!file.is_object()) {
      return Error{ErrorCode::usage, fmt::format("{}: must be a JSON object of flags", file_name),
                   "write {\"max-tokens\": 64}"};
    }
  }

  std::set<std::string> known;
  std::vector<std::string> extra;
  for (const auto* option : options) {
    if (option->get_lnames().empty() || option->check_lname("help") || option->check_lname("config"))
      continue;
    const std::string flag = option->get_lnames().front();
    std::string underscored = flag;
    std::replace(underscored.begin(), underscored.end(), '-', '_');
    known.insert({flag, underscored});
    if (given(args, *option)) continue;
    if (const char* value = env(variable_of(flag)); value != nullptr && *value != '\0') {
      extra.push_back(fmt::format("--{}={}", flag, value));
      continue;
    }
    const auto it = file.contains(flag) ? file.find(flag) : file.find(underscored);
    if (it == file.end() || it->is_null()) continue;
    SNUG_ASSIGN(const auto values, values_of(*it, file_name, flag));
    for (const auto& value : values) extra.push_back(fmt::format("--{}={}", flag, value));
  }
  for (const auto& [key, value] : file.items()) {
    if (known.contains(key)) continue;
    return Error{ErrorCode::usage, fmt::format("{}: {} is not a flag of snug {}", file_name, key, args[0]),
                 fmt::format("snug {} --help lists them", args[0])};
  }
  args.insert(args.begin() + 1, extra.begin(), extra.end());
  return with_empty_values_apart(args, options);
}

}  // namespace snug::cli
