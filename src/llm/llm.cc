#include "llm/llm.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/process.h"

namespace snug::llm {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Result<std::unique_ptr<LLM>> LLM::load(Skeleton skeleton, LoadOptions options) {
  const auto start = Clock::now();
  const bool mapped = skeleton.checkpoint.has_value();
  Gpu* const gpu = options.gpu.get();
  const bool exact = options.precision == kernels::Precision::exact;
  plan::Held held{.host = resident_bytes(), .server = options.server_bytes};
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
  const auto start = Clock::now();
  SNUG_ASSIGN(Generation generation, Generation::submit(request, skeleton_, *engine_));
  GenerateResult result;
  result.prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  result.completions.resize(generation.ids().size());
  while (!engine_->idle()) {
    for (auto& event : engine_->step()) {
      if (event.error) {
        generation.cancel();
        return *event.error;
      }
      if (result.prefill_s == 0) result.prefill_s = seconds_since(start);
      std::optional<Delta> delta = generation.push(std::move(event));
      if (!delta) continue;
      Completion& completion = result.completions[static_cast<std::size_t>(delta->index)];
      completion.token_ids.push_back(delta->token);
      completion.text += delta->text;
      if (delta->logprobs) {
        completion.logprob_texts.emplace_back(
            skeleton_.tokenizer ? skeleton_.tokenizer->token_bytes(delta->token) : "");
        completion.logprobs.push_back(std::move(*delta->logprobs));
      }
      if (delta->finish_reason) completion.finish_reason = *delta->finish_reason;
      if (!delta->text.empty() && sink && !sink(delta->index, delta->text)) {
        generation.end(delta->index);
        completion.finish_reason = engine::FinishReason::stop;
      }
    }
  }
  result.decode_s = seconds_since(start) - result.prefill_s;
  for (const auto& completion : result.completions)
    result.completion_tokens += static_cast<std::int64_t>(completion.token_ids.size());
  return result;
}

}  // namespace snug::llm
