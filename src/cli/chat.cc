// snug chat MODEL: a conversation in the terminal.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iostream>
#include <memory>

#include "base/bytes.h"
#include "base/json.h"
#include "base/process.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/terminal.h"

namespace snug::cli {
namespace {

constexpr std::int64_t kDefaultContext = 4096;

struct ChatFlags {
  OutputFlags output;
  ModelFlags model;
  SamplingFlags sampling;
  std::string system;
};

// Ctrl-C ends the answer, not the conversation. A signal handler can only set a flag, so it has to be global.
volatile std::sig_atomic_t interrupted = 0;
void on_interrupt(int) {
  interrupted = 1;
}

constexpr const char* kHelp =
    "/system TEXT  set the system prompt and start anew      /clear      forget the conversation\n"
    "/memory       bytes: budget, predicted, peak            /save FILE  write the conversation as JSON\n"
    "/image FILE   add a picture (Qwen2.5-VL)                /quit       leave";

class Chat {
 public:
  Chat(llm::LLM& llm, engine::SamplingParams params, bool quiet)
      : llm_(llm), params_(std::move(params)), quiet_(quiet) {}

  void set_system(const std::string& text) {
    system_ = text;
    clear();
  }
  void clear() {
    messages_ = OrderedJson::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }

  // A line from the user; false to leave.
  bool handle(const std::string& line) {
    if (line.empty()) return true;
    if (line[0] != '/') {
      const Status status = answer(line);
      if (!status) print_error(status.error());
      return true;
    }
    const auto space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/quit" || name == "/exit") return false;
    if (name == "/clear") {
      clear();
    } else if (name == "/system") {
      set_system(rest);
    } else if (name == "/memory") {
      print_note(fmt::format("host: {} used at most, {} predicted, {} allowed",
                             format_bytes(peak_resident_bytes()), format_bytes(llm_.plan().predicted_host),
                             format_bytes(llm_.plan().budget_host)));
      for (const auto& row : llm_.plan().rows)
        print_note(fmt::format("  {:<26} {}", row.tag, format_bytes(row.bytes)));
    } else if (name == "/save") {
      save(rest);
    } else if (name == "/image") {
      print_note("this model does not read pictures");
    } else {
      print_note(kHelp);
    }
    return true;
  }

 private:
  Status answer(const std::string& line) {
    messages_.push_back({{"role", "user"}, {"content", line}});
    const auto forget = [&](const Error& error) {
      messages_.erase(messages_.size() - 1);
      return error;
    };
    const auto text = llm_.skeleton().render_chat(messages_, OrderedJson(), true);
    if (!text) return forget(text.error());
    const auto ids = llm_.skeleton().encode(*text);
    if (!ids) return forget(ids.error());
    interrupted = 0;
    const auto result = llm_.generate({*ids, params_}, [](int, std::string_view piece) {
      std::cout << piece << std::flush;
      return interrupted == 0;
    });
    std::cout << std::endl;
    if (!result) return forget(result.error());
    messages_.push_back({{"role", "assistant"}, {"content", result->completions[0].text}});
    if (!quiet_) {
      const double rate =
          result->decode_s > 0 ? static_cast<double>(result->completion_tokens - 1) / result->decode_s : 0;
      print_note(fmt::format("[{} + {} tokens of {}, {:.1f} tok/s]", result->prompt_tokens,
                             result->completion_tokens, llm_.engine().max_model_len(), rate));
    }
    return {};
  }

  void save(const std::string& file) {
    if (file.empty()) return print_note("/save FILE");
    std::ofstream out(file);
    out << messages_.dump(2, ' ', false, OrderedJson::error_handler_t::replace) << '\n';
    out.flush();
    print_note(out ? fmt::format("saved {} messages to {}", messages_.size(), file)
                   : fmt::format("{}: cannot be written", file));
  }

  llm::LLM& llm_;
  engine::SamplingParams params_;
  bool quiet_;
  std::string system_;
  OrderedJson messages_ = OrderedJson::array();
};

Status chat(const ChatFlags& flags) {
  SNUG_ASSIGN(llm::Skeleton skeleton, flags.model.open(flags.output));
  SNUG_ASSIGN(auto params, flags.sampling.apply(skeleton.default_sampling()));
  SNUG_TRY(engine::validate(params, skeleton.usable_vocab()));
  if (params.n != 1) return Error{ErrorCode::usage, "--n: a chat has one answer", "leave --n out"};
  if (!skeleton.chat_template) return skeleton.render_chat(OrderedJson::array(), OrderedJson(), true).error();
  SNUG_ASSIGN(auto options, flags.model.load_options(skeleton));
  if (!options.wishes.max_model_len) {
    options.wishes.max_model_len = std::min(kDefaultContext, skeleton.config.max_positions);
  }
  if (!flags.sampling.max_tokens) params.max_tokens = static_cast<int>(*options.wishes.max_model_len);
  ProgressBar bar("Loading", !flags.output.quiet);
  options.progress = [&](std::int64_t done, std::int64_t total) { bar.update(done, total); };
  SNUG_ASSIGN(const auto llm, llm::LLM::load(std::move(skeleton), options));
  bar.clear();

  Chat conversation(*llm, params, flags.output.quiet);
  conversation.set_system(flags.system);
  const bool interactive = ::isatty(STDIN_FILENO) == 1;
  if (interactive) {
    print_note("Write a message; /help shows the commands, Ctrl-D leaves.");
    std::signal(SIGINT, on_interrupt);
  }
  for (std::string line;;) {
    if (interactive) std::cerr << "> " << std::flush;
    if (!std::getline(std::cin, line) || !conversation.handle(line)) break;
  }
  return {};
}

}  // namespace

Command chat_command() {
  return {"chat", "A conversation in the terminal", [](CLI::App& app) -> Runner {
            auto flags = std::make_shared<ChatFlags>();
            flags->model.add(app);
            app.add_option("--system", flags->system, "the system prompt");
            flags->sampling.add(app);
            flags->output.add(app);
            return [flags] { return chat(*flags); };
          }};
}

}  // namespace snug::cli
