// The engine: requests in, one step at a time, token events out. CONTRACT.md says who owns what.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "core/gpu.h"
#include "core/ledger.h"
#include "engine/device_batch.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "kv/kv_cache.h"
#include "model/layer_source.h"
#include "model/qwen2.h"
#include "model/workspace.h"
#include "plan/plan.h"

namespace snug::engine {

// Used from one thread. Owns the KV cache and the workspace; reads weights through `layers`, which must
// outlive it.
class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(model::Qwen2 model, model::LayerSource& layers,
                                                const plan::Plan& plan, int usable_vocab, Ledger& ledger,
                                                Gpu* gpu = nullptr);
  ~Engine();

  // usage error where the prompt is empty, holds an id outside the vocabulary, or leaves no room in the
  // context for one token more. Where max_tokens would pass the context's end, the answer ends there
  // ("length").
  Result<RequestId> submit(Request request);
  // Gives the request's pages back; false if it is not known (any more). A step under way may still write to
  // them: whoever gets them stores its tokens later in the stream.
  bool cancel(RequestId id);

  // One forward pass over the scheduled batch. A fault in one row ends that request; a fault of the whole
  // step ends the requests in it. Returns the events in order of submission. On a GPU the step after it may
  // be under way by then.
  std::vector<Event> step();
  bool idle() const { return scheduler_.idle(); }

  // Forward over one sequence on its own, all positions: logits in chunks of rows to `rows(first, count,
  // logits)`. For evaluation; the engine must be idle.
  using LogitRows = std::function<Status(std::int64_t first, std::int64_t count, const float* logits)>;
  using HiddenObserver =
      std::function<void(int layer, std::int64_t first_token, std::int64_t tokens, const float* hidden)>;
  Status evaluate(std::span<const std::int32_t> ids, const LogitRows& rows,
                  const HiddenObserver& hidden = {});

  // Sequences now.
  struct Load {
    std::int64_t running = 0, waiting = 0;
  };
  Load load() const {
    return {static_cast<std::int64_t>(scheduler_.running()), static_cast<std::int64_t>(scheduler_.waiting())};
  }

  std::int64_t max_model_len() const { return max_model_len_; }
  const model::Config& config() const { return model_.config(); }
  // Pages in use are exactly those of known sequences; ok when idle means all are free.
  Status check() const;

 private:
  Engine(model::Qwen2 model, model::LayerSource& layers, const plan::Plan& plan, int usable_vocab);
  void build_batch(const std::vector<Scheduled>& scheduled);
  // The batch under construction as the model takes it.
  model::Batch batch(DeviceBatch::Ids ids = DeviceBatch::Ids::from_host);
  // A step that was handed to the model. `scheduled` is as it was then, but for the sequences that have ended
  // since: null.
  struct Step {
    std::vector<Scheduled> scheduled;
    std::int64_t rows = 0;  // of logits
    int place = 0;          // of its tokens, on a GPU
  };
  // Runs `step.scheduled`, on a GPU without waiting for it.
  void launch(Step& step, DeviceBatch::Ids ids = DeviceBatch::Ids::from_host);
  // The step after `step`, where it can be known without the tokens that step brings.
  void launch_ahead(const Step& step);
  std::vector<float> on_host(ConstValues values, std::int64_t count) const;
  // What a step brought to the host of its rows of logits.
  struct StepResult {
    std::int64_t rows = 0;
    std::vector<TokenLogprob> greedy;               // from a GPU
    std::span<const kernels::LikelyTokens> likely;  // where a row wants more than that
    float* logits = nullptr;                        // (rows, vocab); from a GPU only once they are needed
  };
  StepResult read_result(const Step& step);
  Result<Sampled> sample_row(const Sequence& sequence, std::size_t row, StepResult& result);
  // Whether the most likely token is all that a request asks for.
  static bool is_greedy(const SamplingParams& params);
  static bool is_greedy(const Scheduled& scheduled);
  // Runs every kernel that a step may use once, so that the driver loads none of them later.
  void load_kernels();
  // Forward, projection and choice of a decode step of so many sequences, recorded once and replayed.
  void capture_decode_steps();
  // The step whose batch is under construction, and on a GPU the choice of each row's most likely token: its
  // graph, or enqueue().
  void run_step(std::int64_t wanted, DeviceBatch::Ids ids);
  void enqueue(const model::Batch& built, std::int64_t wanted);
  void finish_row(Sequence& sequence, Result<Sampled> sampled, std::vector<Event>& events);
  void fail_all(const Step& step, const Error& error, std::vector<Event>& events);

  model::Qwen2 model_;
  model::LayerSource* layers_;
  model::Workspace workspace_;
  Allocation kv_memory_;
  kv::KvCache kv_;
  kv::BlockPool pool_;
  Scheduler scheduler_;
  Sampler sampler_;
  Gpu* gpu_ = nullptr;
  std::optional<DeviceBatch> device_batch_;        // where there is a GPU
  std::map<std::size_t, GpuGraph> decode_graphs_;  // by number of sequences
  int usable_vocab_;
  std::int64_t max_model_len_;
  RequestId next_id_ = 1;
  Step ahead_;  // under way while the host reads the step before; empty if none is
  // The batch under construction; reused from step to step.
  std::vector<std::int32_t> ids_, positions_, logit_rows_;
  std::vector<kv::SequenceView> views_;
};

}  // namespace snug::engine
