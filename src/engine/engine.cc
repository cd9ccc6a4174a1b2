#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "kernels/decode_layers.h"
#include "kernels/linear.h"

namespace snug::engine {

Engine::Engine(model::Qwen2 model, model::LayerSource& layers, const plan::Plan& plan, int usable_vocab)
    : model_(std::move(model)),
      layers_(&layers),
      pool_(static_cast<std::int32_t>(plan.kv_blocks)),
      scheduler_({plan.limits.sequences, plan.limits.tokens, plan.kv_block_size}, pool_),
      usable_vocab_(usable_vocab),
      max_model_len_(plan.max_model_len) {}

Engine::~Engine() {
  if (gpu_ == nullptr) return;
  try {
    gpu_->synchronize();  // a step may be under way in this memory
  } catch (const std::exception&) {
    // A GPU at fault has said so in a step.
  }
}

Result<std::unique_ptr<Engine>> Engine::create(model::Qwen2 model, model::LayerSource& layers,
                                               const plan::Plan& plan, int usable_vocab, Ledger& ledger,
                                               Gpu* gpu) {
  const model::Config& config = model.config();
  // With fewer, a long sequence would wait for ever for pages that do not exist.
  const std::int64_t needed = kv::blocks_for(plan.max_model_len, plan.kv_block_size);
  if (plan.kv_blocks < needed) {
    return Error{ErrorCode::failed,
                 fmt::format("the plan has {} KV blocks, one sequence of {} tokens may need {}",
                             plan.kv_blocks, plan.max_model_len, needed),
                 "this is a fault in Snug: please report it"};
  }
  const auto row =
      model::kv_row(config, plan.kv_blocks, plan.kv_block_size, plan.kv_dtype, plan.limits.device());
  SNUG_ASSIGN(Allocation kv_memory, ledger.allocate(row.tag, row.device, row.bytes));
  SNUG_ASSIGN(model::Workspace workspace, model::Workspace::create(config, plan.limits, ledger));
  std::unique_ptr<Engine> engine(new Engine(std::move(model), layers, plan, usable_vocab));
  engine->kv_memory_ = std::move(kv_memory);
  engine->workspace_ = std::move(workspace);
  if (gpu != nullptr) {
    engine->gpu_ = gpu;
    SNUG_ASSIGN(engine->device_batch_, DeviceBatch::create(*gpu, plan.limits, plan.max_model_len,
                                                           plan.kv_block_size, config.vocab, ledger));
  }
  const model::Config& c = engine->config();
  engine->kv_ = {.base = engine->kv_memory_.data(),
                 .layers = c.layers,
                 .blocks = plan.kv_blocks,
                 .dtype = plan.kv_dtype,
                 .block_size = plan.kv_block_size,
                 .kv_heads = static_cast<int>(c.kv_heads),
                 .head_dim = static_cast<int>(c.head_dim)};
  if (gpu != nullptr) {
    const model::Workspace& w = engine->workspace_;
    gpu->fill(static_cast<std::byte*>(w.decode_sync.data), 0, kernels::cuda::kDecodeSyncWords * 4);
    gpu->fill(static_cast<std::byte*>(w.attention_sync.data), 0, w.limits.sequences * c.heads * 4);
    try {
      engine->load_kernels();
      engine->capture_decode_steps();
    } catch (const std::exception& e) {
      return Error{ErrorCode::failed, fmt::format("the GPU's first step failed: {}", e.what()), ""};
    }
  }
  return engine;
}

Result<RequestId> Engine::submit(Request request) {
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (length == 0) {
    return Error{ErrorCode::usage, "the prompt is empty", "give at least one token"};
  }
  if (length >= max_model_len_) {
    return Error{ErrorCode::usage,
                 fmt::format("the prompt has {} tokens, the context holds {} with at least one to generate",
                             length, max_model_len_),
                 fmt::format("shorten the prompt, or allow more with --max-model-len {}", length + 1)};
  }
  for (const std::int32_t id : request.prompt) {
    if (id >= 0 && id < config().vocab) continue;
    return Error{ErrorCode::usage,
                 fmt::format("token id {} is outside the vocabulary of {}", id, config().vocab),
                 "use ids of this model's tokenizer"};
  }
  auto sequence = std::make_unique<Sequence>(kv::SequenceBlocks(&pool_, kv_.block_size));
  sequence->id = next_id_++;
  sequence->tokens = request.prompt;
  sequence->longest = std::min(length + request.params.max_tokens, max_model_len_);
  sequence->counts.add_prompt(request.prompt);
  sequence->request = std::move(request);
  const RequestId id = sequence->id;
  scheduler_.add(std::move(sequence));
  return id;
}

bool Engine::cancel(RequestId id) {
  for (Scheduled& s : ahead_.scheduled) {
    if (s.sequence != nullptr && s.sequence->id == id) s.sequence = nullptr;
  }
  return scheduler_.remove(id);
}

std::vector<Event> Engine::step() {
  std::vector<Event> events;
  Step step = std::exchange(ahead_, {});
  StepResult result;
  try {
    const auto runs = [](const Scheduled& s) { return s.sequence != nullptr; };
    if (std::ranges::none_of(step.scheduled, runs)) {
      step.scheduled = scheduler_.next();
      if (step.scheduled.empty()) return events;
      launch(step);
    }
    launch_ahead(step);
    result = read_result(step);
  } catch (const std::exception& e) {
    fail_all(step, {ErrorCode::failed, fmt::format("the step failed: {}", e.what()), ""}, events);
    return events;
  }
  std::size_t row = 0;
  for (const Scheduled& s : step.scheduled) {
    if (!s.to_end) continue;  // its prompt goes on
    if (s.sequence != nullptr) finish_row(*s.sequence, sample_row(*s.sequence, row, result), events);
    ++row;
  }
  return events;
}

void Engine::launch(Step& step, DeviceBatch::Ids ids) {
  build_batch(step.scheduled);
  step.rows = std::ssize(logit_rows_);
  run_step(step.rows, ids);
  for (const Scheduled& s : step.scheduled) s.sequence->computed += s.tokens;
  if (!device_batch_ || step.rows == 0) return;
  const bool any_likely = std::ranges::any_of(step.scheduled, [](const Scheduled& s) {
    return !is_greedy(s) && Sampler::takes_likely(s.sequence->request.params);
  });
  if (any_likely) {
    device_batch_->find_likely(model_.stream(), workspace_, step.rows, config().vocab, usable_vocab_);
  }
  step.place = device_batch_->bring_greedy(step.rows);
}

void Engine::launch_ahead(const Step& step) {
  // Tokens that the host draws are known to the host alone, and a sequence that has ended left its row.
  const auto goes_on = [](const Scheduled& s) { return s.sequence != nullptr && is_greedy(s); };
  if (!device_batch_ || !std::ranges::all_of(step.scheduled, goes_on)) return;
  ahead_.scheduled = scheduler_.ahead();
  if (!ahead_.scheduled.empty()) launch(ahead_, DeviceBatch::Ids::chosen);
}

Engine::StepResult Engine::read_result(const Step& step) {
  StepResult result{.rows = step.rows};
  if (step.rows == 0) return result;
  if (device_batch_) {
    result.greedy = device_batch_->greedy(step.place, step.rows);
    result.likely = device_batch_->likely(step.rows);
  } else {
    result.logits = workspace_.logits.f32();
  }
  return result;
}

Result<Sampled> Engine::sample_row(const Sequence& sequence, std::size_t row, StepResult& result) {
  const SamplingParams& params = sequence.request.params;
  const auto step = static_cast<std::uint64_t>(sequence.generated());
  if (!result.greedy.empty()) {
    const TokenLogprob& best = result.greedy[row];
    if (best.token < 0) {
      return Error{ErrorCode::failed, "non-finite logits",
                   "the weights or a kernel are at fault: check the model's files"};
    }
    if (is_greedy(params)) return Sampled{best.token, best.logprob, {}};
    if (Sampler::takes_likely(params) && result.likely[row].count <= kernels::kLikelyRoom) {
      const kernels::LikelyTokens& likely = result.likely[row];
      const std::span tokens(likely.tokens, static_cast<std::size_t>(likely.count));
      const auto highest = std::ranges::max_element(tokens, {}, &kernels::LikelyToken::logit);
      const auto all = std::min<std::int64_t>(config().vocab, usable_vocab_);
      auto sampled =
          sampler_.sample_likely(tokens, likely.count == all, double{highest->logit} - double{best.logprob},
                                 params, sequence.counts, sequence.request.seed, step);
      if (sampled) return std::move(*sampled);
    }
  }
  const auto vocab = static_cast<std::size_t>(config().vocab);
  if (result.logits == nullptr) {
    try {
      result.logits = device_batch_->logits(workspace_, result.rows * config().vocab);
    } catch (const std::exception& e) {
      return Error{ErrorCode::failed, fmt::format("the step failed: {}", e.what()), ""};
    }
  }
  return sampler_.sample({result.logits + row * vocab, vocab}, params, sequence.counts, sequence.request.seed,
                         step, usable_vocab_);
}

void Engine::build_batch(const std::vector<Scheduled>& scheduled) {
  ids_.clear(), positions_.clear(), logit_rows_.clear(), views_.clear();
  for (const auto& [sequence, tokens, to_end] : scheduled) {
    const auto begin = static_cast<std::int32_t>(ids_.size());
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::int64_t at = sequence->computed + i;
      ids_.push_back(at < sequence->length() ? sequence->tokens[static_cast<std::size_t>(at)] : -1);
      positions_.push_back(static_cast<std::int32_t>(sequence->computed + i));
    }
    const std::int64_t kv_len = sequence->computed + tokens;
    views_.push_back({sequence->pages.page_table().data(), begin, static_cast<std::int32_t>(tokens),
                      static_cast<std::int32_t>(kv_len)});
    if (to_end) logit_rows_.push_back(static_cast<std::int32_t>(ids_.size()) - 1);
  }
}

model::Batch Engine::batch(DeviceBatch::Ids ids) {
  model::Batch batch{ids_, positions_, views_, logit_rows_};
  if (device_batch_) batch.device = &device_batch_->upload(batch, kv_.block_size, ids);
  return batch;
}

bool Engine::is_greedy(const SamplingParams& p) {
  return p.temperature == 0 && p.repetition_penalty == 1 && p.presence_penalty == 0 &&
         p.frequency_penalty == 0 && p.logit_bias.empty() && p.logprobs.value_or(0) == 0;
}

bool Engine::is_greedy(const Scheduled& scheduled) {
  return is_greedy(scheduled.sequence->request.params);
}

void Engine::run_step(std::int64_t wanted, DeviceBatch::Ids ids) {
  const model::Batch built = batch(ids);
  const bool decodes = logit_rows_.size() == views_.size() && ids_.size() == views_.size();
  const auto graph = decode_graphs_.find(views_.size());
  if (decodes && graph != decode_graphs_.end()) {
    gpu_->launch(graph->second);
    return;
  }
  enqueue(built, wanted);
}

void Engine::enqueue(const model::Batch& built, std::int64_t wanted) {
  if (wanted == 0 || !model_.decode(built, *layers_, kv_, workspace_)) {
    model_.forward(built, *layers_, kv_, workspace_);
    if (wanted > 0) model_.project(0, wanted, *layers_, workspace_);
  }
  if (device_batch_ && wanted > 0)
    device_batch_->choose_greedy(model_.stream(), workspace_, wanted, config().vocab, usable_vocab_);
}

void Engine::load_kernels() {
  const model::ForwardLimits& limits = workspace_.limits;
  const std::int64_t longest = std::min(limits.tokens, max_model_len_);
  // Any pages do: what is in them before the first request does not matter.
  const std::vector<std::int32_t> pages(static_cast<std::size_t>(kv::blocks_for(longest, kv_.block_size)));
  const auto build = [&](std::int64_t tokens) {
    ids_.clear(), positions_.clear(), views_.clear();
    while (std::ssize(ids_) < tokens) {
      const auto begin = static_cast<std::int32_t>(ids_.size());
      const auto own = static_cast<std::int32_t>(std::min(longest, tokens - begin));
      views_.push_back({pages.data(), begin, own, own});
      for (std::int32_t i = 0; i < own; ++i) ids_.push_back(0), positions_.push_back(i);
    }
    logit_rows_ = {0};
    return batch();
  };
  const std::int64_t most = std::min(limits.tokens, limits.sequences * max_model_len_);
  // Exact arithmetic has one kernel for any number of tokens past a few.
  const bool exact = model_.precision() == kernels::Precision::exact;
  const auto counts = exact ? std::vector<std::int64_t>{std::min<std::int64_t>(most, 256)}
                            : kernels::cuda::linear_token_counts(most);
  // Of layers that differ in their weights' types, all are run at this size.
  constexpr std::int64_t kWhole = 128;
  model_.forward(build(std::min(most, kWhole)), *layers_, kv_, workspace_);
  model::Config first_layer = config();
  first_layer.layers = 1;
  const model::Qwen2 shallow(first_layer, model_.stream(), model_.precision());
  for (const std::int64_t tokens : counts) shallow.forward(build(tokens), *layers_, kv_, workspace_);
  for (const std::int64_t rows : kernels::cuda::linear_token_counts(limits.logit_rows)) {
    model_.project(0, rows, *layers_, workspace_);
  }
  device_batch_->choose_greedy(model_.stream(), workspace_, 1, config().vocab, usable_vocab_);
  device_batch_->find_likely(model_.stream(), workspace_, 1, config().vocab, usable_vocab_);
  gpu_->synchronize();
}

void Engine::capture_decode_steps() {
  const std::int32_t page = 0;
  for (const std::size_t sequences : {1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 32, 48, 64}) {
    if (static_cast<std::int64_t>(sequences) > workspace_.limits.sequences) break;
    // What is in the batch does not matter: it is read from device memory when the step is replayed.
    ids_.assign(sequences, 0), positions_.assign(sequences, 0), logit_rows_.clear(), views_.clear();
    for (std::size_t i = 0; i < sequences; ++i) {
      logit_rows_.push_back(static_cast<std::int32_t>(i));
      views_.push_back({&page, static_cast<std::int32_t>(i), 1, 1});
    }
    const auto rows = static_cast<std::int64_t>(sequences);
    const model::Batch built = batch();
    enqueue(built, rows);  // once for real: loads the kernels
    gpu_->synchronize();
    gpu_->begin_capture();
    try {
      enqueue(built, rows);
    } catch (...) {
      gpu_->drop_capture();
      throw;
    }
    decode_graphs_[sequences] = gpu_->end_capture();
  }
  gpu_->synchronize();
}

void Engine::finish_row(Sequence& sequence, Result<Sampled> sampled, std::vector<Event>& events) {
  const Request& request = sequence.request;
  Event event{.request = sequence.id};
  if (!sampled) {
    event.error = sampled.error();
    event.finished = FinishReason::error;
  } else {
    const std::int32_t token = sampled->token;
    event.token = std::move(*sampled);
    sequence.tokens.push_back(token);
    sequence.counts.add_output(token);
    event.is_eos =
        !request.params.ignore_eos && std::ranges::find(request.eos_ids, token) != request.eos_ids.end();
    if (event.is_eos) {
      event.finished = FinishReason::stop;
    } else if (sequence.length() >= sequence.longest) {
      event.finished = FinishReason::length;
    }
  }
  if (event.finished) cancel(sequence.id);
  events.push_back(std::move(event));
}

void Engine::fail_all(const Step& step, const Error& error, std::vector<Event>& events) {
  for (const Scheduled& s : step.scheduled) {
    if (s.sequence == nullptr) continue;
    events.push_back({.request = s.sequence->id, .finished = FinishReason::error, .error = error});
  }
  for (const auto& event : events) cancel(event.request);
}

std::vector<float> Engine::on_host(ConstValues values, std::int64_t count) const {
  std::vector<float> floats(static_cast<std::size_t>(count));
  if (gpu_ == nullptr) {
    std::copy_n(values.f32(), count, floats.begin());
    return floats;
  }
  if (values.dtype == DType::f32) {
    gpu_->download(floats.data(), values.data, count * 4);
    gpu_->synchronize();
    return floats;
  }
  std::vector<std::uint16_t> halves(floats.size());
  gpu_->download(halves.data(), values.data, count * 2);
  gpu_->synchronize();
  std::ranges::transform(halves, floats.begin(), f32_from_bf16);
  return floats;
}

Status Engine::evaluate(std::span<const std::int32_t> ids, const LogitRows& rows,
                        const HiddenObserver& hidden) {
  if (!idle()) return Error{ErrorCode::failed, "evaluation needs an idle engine", ""};
  if (std::ssize(ids) > max_model_len_) {
    return Error{ErrorCode::usage,
                 fmt::format("{} tokens to evaluate, the context holds {}", ids.size(), max_model_len_),
                 "split the text, or raise --max-model-len"};
  }
  kv::SequenceBlocks pages(&pool_, kv_.block_size);
  Status status;
  const auto run = [&]() -> Status {
    for (std::int64_t begin = 0; begin < std::ssize(ids); begin += workspace_.limits.tokens) {
      const std::int64_t count = std::min(workspace_.limits.tokens, std::ssize(ids) - begin);
      SNUG_TRY(pages.ensure_capacity(begin + count));
      ids_.assign(ids.begin() + begin, ids.begin() + begin + count);
      positions_.resize(static_cast<std::size_t>(count));
      logit_rows_.resize(static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i) {
        positions_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(begin + i);
        logit_rows_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i);
      }
      views_ = {{pages.page_table().data(), 0, static_cast<std::int32_t>(count),
                 static_cast<std::int32_t>(begin + count)}};
      model::Qwen2::Observer observe;
      if (hidden) {
        observe = [&](int layer, ConstValues values) {
          const auto floats = on_host(values, count * config().hidden);
          hidden(layer, begin, count, floats.data());
        };
      }
      model_.forward(batch(), *layers_, kv_, workspace_, observe);
      for (std::int64_t first = 0; first < count; first += workspace_.limits.logit_rows) {
        const std::int64_t some = std::min(workspace_.limits.logit_rows, count - first);
        model_.project(first, some, *layers_, workspace_);
        SNUG_TRY(rows(begin + first, some,
                      device_batch_ ? device_batch_->logits(workspace_, some * config().vocab)
                                    : workspace_.logits.f32()));
      }
    }
    return {};
  };
  try {
    status = run();
  } catch (const std::exception& e) {
    status = Error{ErrorCode::failed, fmt::format("evaluation failed: {}", e.what()), ""};
  }
  return status;
}

Status Engine::check() const {
  SNUG_TRY(pool_.check());
  if (idle() && pool_.free_blocks() != pool_.blocks()) {
    return Error{
        ErrorCode::failed,
        fmt::format("{} KV blocks are in use while no request runs", pool_.blocks() - pool_.free_blocks()),
        ""};
  }
  return {};
}

}  // namespace snug::engine
