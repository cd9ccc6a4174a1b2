#include "llm/llm.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "base/process.h"
#include "base/rng.h"
#include "text/stream_decoder.h"

namespace snug::llm {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One answer on its way to text.
struct Answer {
  engine::RequestId id = 0;
  std::optional<text::StreamDecoder> decoder;
  text::StopMatcher stops;
  Completion completion;
  bool done = false;
};

}  // namespace

Result<std::unique_ptr<LLM>> LLM::load(Skeleton skeleton, LoadOptions options) {
  const auto start = Clock::now();
  const bool mapped = skeleton.checkpoint.has_value();
  Gpu* const gpu = options.gpu.get();
  const bool exact = options.precision == kernels::Precision::exact;
  plan::Held held{.host = resident_bytes()};
  if (gpu != nullptr) {
    held.gpu_context = gpu->context_bytes();
    held.blas_workspace = Gpu::blas_workspace_bytes();
    options.wishes.backend = Backend::cuda;
    options.wishes.activations = exact ? DType::f32 : DType::bf16;
    options.wishes.kv_dtype = options.wishes.activations;
    std::vector<model::BoundWeight> bound;
    for (auto& w : skeleton.weights) bound.push_back(std::move(w.weight));
    skeleton.weights = model::place_weights(std::move(bound), Backend::cuda, exact);
  }
  SNUG_ASSIGN(plan::Plan plan, plan::make_plan(skeleton.config, skeleton.weights, mapped, options.budget,
                                               options.wishes, held));
  std::unique_ptr<LLM> llm(new LLM(std::move(skeleton), options));
  llm->plan_ = std::move(plan);
  Ledger& ledger = llm->ledger_;
  Stream stream{Backend::cpu, &llm->pool_};
  if (gpu != nullptr) {
    stream = {Backend::cuda, &llm->pool_, gpu->stream()};
    SNUG_TRY(ledger.reserve_gpu(llm->plan_.reserved_gpu));
    ledger.count_driver("cuda.context", Device::gpu0, held.gpu_context);
    SNUG_ASSIGN(llm->blas_workspace_,
                ledger.allocate("workspace.cublaslt", Device::gpu0, Gpu::blas_workspace_bytes()));
    gpu->set_blas_workspace(llm->blas_workspace_.data());
  }
  const residency::Carrier carrier{&ledger, stream, gpu, exact, options.progress};
  const Skeleton& s = llm->skeleton_;
  if (mapped) {
    SNUG_ASSIGN(llm->weights_,
                residency::ResidentWeights::load(s.config, s.weights, s.checkpoint->weights, carrier));
  } else {
    SNUG_ASSIGN(llm->weights_,
                residency::ResidentWeights::random(s.config, s.weights, options.random_seed, carrier));
  }
  SNUG_ASSIGN(llm->engine_,
              engine::Engine::create(model::Qwen2(s.config, stream, options.precision), *llm->weights_,
                                     llm->plan_, s.usable_vocab(), ledger, gpu));
  if (gpu != nullptr) {
    // Whatever the driver took beside the context and the block: modules, graphs.
    const std::int64_t driver = gpu->bytes_taken() - held.gpu_context - llm->plan_.reserved_gpu;
    ledger.count_driver("cuda.modules", Device::gpu0, std::max<std::int64_t>(driver, 0));
  }
  llm->ledger_.freeze();
  llm->load_s_ = seconds_since(start);
  return llm;
}

Result<GenerateResult> LLM::generate(const GenerateRequest& request, const TextSink& sink) {
  SNUG_TRY(engine::validate(request.params, skeleton_.usable_vocab()));
  const auto start = Clock::now();
  const std::uint64_t seed =
      request.params.seed ? *request.params.seed : std::random_device{}() * 0x100000001ull;
  std::vector<Answer> answers;
  const auto cancel_all = [&] {
    for (auto& answer : answers) engine_->cancel(answer.id);
  };
  for (int i = 0; i < request.params.n; ++i) {
    // The first answer draws with the seed itself, so n does not change it.
    auto id = engine_->submit({request.prompt, request.params,
                               i == 0 ? seed : mix64(seed + static_cast<unsigned>(i)), skeleton_.eos_ids});
    if (!id) {
      cancel_all();
      return id.error();
    }
    Answer answer{.id = *id, .stops = text::StopMatcher(request.params.stop)};
    if (skeleton_.tokenizer) answer.decoder.emplace(*skeleton_.tokenizer, true);
    answers.push_back(std::move(answer));
  }

  GenerateResult result;
  result.prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  const auto send = [&](std::size_t index, const std::string& text) {
    answers[index].completion.text += text;
    return text.empty() || !sink || sink(static_cast<int>(index), text);
  };
  const auto finish = [&](Answer& answer, engine::FinishReason reason) {
    answer.completion.finish_reason = reason;
    answer.done = true;
  };
  while (!engine_->idle()) {
    for (auto& event : engine_->step()) {
      std::size_t index = 0;
      while (index < answers.size() && answers[index].id != event.request) ++index;
      if (index == answers.size() || answers[index].done) continue;
      Answer& answer = answers[index];
      if (event.error) {
        cancel_all();
        return *event.error;
      }
      if (result.prefill_s == 0) result.prefill_s = seconds_since(start);
      const std::int32_t token = event.token->token;
      answer.completion.token_ids.push_back(token);
      if (request.params.logprobs && !event.is_eos) {
        answer.completion.logprob_texts.emplace_back(
            skeleton_.tokenizer ? skeleton_.tokenizer->token_bytes(token) : "");
        answer.completion.logprobs.push_back(std::move(*event.token));
      }
      bool wanted = true;
      if (answer.decoder && !event.is_eos)
        wanted = send(index, answer.stops.push(answer.decoder->push(token)));
      if (answer.decoder && event.finished && !answer.stops.stopped()) {
        const std::string tail = answer.stops.push(answer.decoder->finish());
        wanted = send(index, tail) && wanted;
        if (!answer.stops.stopped()) send(index, answer.stops.finish());
      }
      if (answer.stops.stopped() || !wanted) {
        engine_->cancel(answer.id);
        finish(answer, engine::FinishReason::stop);
      } else if (event.finished) {
        finish(answer, *event.finished);
      }
    }
  }
  result.decode_s = seconds_since(start) - result.prefill_s;
  for (auto& answer : answers) {
    result.completion_tokens += static_cast<std::int64_t>(answer.completion.token_ids.size());
    result.completions.push_back(std::move(answer.completion));
  }
  return result;
}

}  // namespace snug::llm
