// snug bench MODEL: speed, beside what the machine can do at most.
#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "base/json.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "kernels/ceiling.h"
#include "llm/benchmark.h"

namespace snug::cli {
namespace {

struct BenchFlags {
  OutputFlags output;
  ModelFlags model;
  llm::BenchmarkOptions options;
};

// On a GPU: reading memory has a measured ceiling; that of the matrix units is not measured here.
Status report_gpu(const BenchFlags& flags, const llm::LLM& llm, const llm::BenchmarkResult& result,
                  const Json& memory) {
  const auto block = llm.ledger().gpu_block();
  const double read_gbps = kernels::cuda::measure_read_gbps({Backend::cuda, nullptr, llm.gpu()->stream()},
                                                            block.data(), std::ssize(block));
  const double ratio = result.decode_gbps / read_gbps;
  if (flags.output.json) {
    const Json out = {{"prefill_tok_s", result.prefill_tok_s},
                      {"decode_tok_s", result.decode_tok_s},
                      {"achieved", {{"GBps", result.decode_gbps}, {"TFLOPs", result.prefill_tflops}}},
                      {"ceiling", {{"GBps", read_gbps}, {"TFLOPs", nullptr}}},
                      {"ratio", {{"decode", ratio}, {"prefill", nullptr}}},
                      {"logits_hash", result.logits_hash},
                      {"gpu", llm.gpu()->info().name},
                      {"memory", memory}};
    std::cout << json_line(out) << std::endl;
    return {};
  }
  std::cout << fmt::format("{}  {}\n", flags.model.model, llm.gpu()->info().name)
            << fmt::format("  prefill {:>5} tokens  {:>9.1f} tok/s   {:>6.1f} TFLOP/s\n",
                           flags.options.prompt, result.prefill_tok_s, result.prefill_tflops)
            << fmt::format("  decode  {:>5} tokens  {:>9.1f} tok/s   {:>6.0f} GB/s of {:.0f}  {:.0f} %\n",
                           flags.options.generate, result.decode_tok_s, result.decode_gbps, read_gbps,
                           100 * ratio)
            << fmt::format("  logits {}\n", result.logits_hash);
  return {};
}

Status bench(const BenchFlags& flags) {
  SNUG_ASSIGN(llm::Skeleton skeleton, flags.model.open(flags.output));
  SNUG_ASSIGN(auto options, flags.model.load_options(skeleton));
  const auto& wanted = flags.options;
  const std::int64_t length = wanted.prompt + wanted.generate;
  if (length > skeleton.config.max_positions) {
    return Error{ErrorCode::usage,
                 fmt::format("--prompt {} --generate {}: the model knows {} positions", wanted.prompt,
                             wanted.generate, skeleton.config.max_positions),
                 "ask for fewer tokens"};
  }
  options.wishes.max_model_len = length;
  options.wishes.max_num_seqs = wanted.batch;
  ProgressBar bar("Loading", !flags.output.quiet);
  options.progress = [&](std::int64_t done, std::int64_t total) { bar.update(done, total); };
  SNUG_ASSIGN(const auto llm, llm::LLM::load(std::move(skeleton), options));
  bar.clear();
  SNUG_ASSIGN(const auto result, llm::run_benchmark(*llm, wanted));
  // The ceiling takes memory of its own, so it comes after the model's peak is read.
  const Json memory = memory_report(*llm);
  if (llm->gpu() != nullptr) return report_gpu(flags, *llm, result, memory);
  kernels::cpu::Ceiling ceiling;
  {
    ThreadPool pool(options.wishes.threads);
    ceiling = kernels::cpu::measure_ceiling({Backend::cpu, &pool});
  }
  const double decode_ratio = result.decode_gbps / ceiling.read_gbps;
  const double prefill_ratio = result.prefill_tflops / ceiling.fma_tflops;
  if (flags.output.json) {
    const Json out = {{"prefill_tok_s", result.prefill_tok_s},
                      {"decode_tok_s", result.decode_tok_s},
                      {"achieved", {{"GBps", result.decode_gbps}, {"TFLOPs", result.prefill_tflops}}},
                      {"ceiling", {{"GBps", ceiling.read_gbps}, {"TFLOPs", ceiling.fma_tflops}}},
                      {"ratio", {{"decode", decode_ratio}, {"prefill", prefill_ratio}}},
                      {"logits_hash", result.logits_hash},
                      {"threads", options.wishes.threads},
                      {"instruction_set", kernels::cpu::target_name()},
                      {"memory", memory}};
    std::cout << json_line(out) << std::endl;
    return {};
  }
  std::cout
      << fmt::format("{}  {} threads, {}\n", flags.model.model, options.wishes.threads,
                     kernels::cpu::target_name())
      << fmt::format(
             "  prefill {:>5} tokens  {:>9.1f} tok/s   {:.3f} TFLOP/s of {:.3f} (float32 FMA)  {:.0f} %\n",
             wanted.prompt, result.prefill_tok_s, result.prefill_tflops, ceiling.fma_tflops,
             100 * prefill_ratio)
      << fmt::format("  decode  {:>5} tokens  {:>9.1f} tok/s   {:>5.1f} GB/s of {:.1f}  {:.0f} %\n",
                     wanted.generate, result.decode_tok_s, result.decode_gbps, ceiling.read_gbps,
                     100 * decode_ratio)
      << fmt::format("  logits {}\n", result.logits_hash);
  return {};
}

}  // namespace

Command bench_command() {
  return {"bench", "Speed, beside the machine's ceilings", [](CLI::App& app) -> Runner {
            auto flags = std::make_shared<BenchFlags>();
            flags->model.add(app);
            app.add_option("--prompt", flags->options.prompt, "prompt tokens")->check(CLI::Range(1, 1 << 20));
            app.add_option("--generate", flags->options.generate, "tokens to generate")
                ->check(CLI::Range(1, 1 << 20));
            app.add_option("--batch", flags->options.batch, "sequences at once")->check(CLI::Range(1, 1024));
            app.add_option("--repeat", flags->options.repeat, "runs; the median counts")
                ->check(CLI::Range(1, 1000));
            flags->output.add(app);
            return [flags] { return bench(*flags); };
          }};
}

}  // namespace snug::cli
