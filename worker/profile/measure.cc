#include "worker/profile/measure.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "worker/model/transformer_stage.h"
#include "worker/optimizer/adamw.h"
#include "worker/profile/fit.h"
#include "worker/profile/measure_link.h"
#include "worker/profile/measured_shapes.h"
#include "worker/profile/memory.h"
#include "worker/torch/boundary.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMostTokens = 16384;
constexpr size_t kFewestShapes = 4;
constexpr int kMostRepeats = 9;
// Shares of the time: the layer is most of every model.
constexpr double kLayerShare = 0.55;
constexpr double kHeadShare = 0.3;
constexpr double kEmbeddingShare = 0.1;

double NanosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct PassTimes {
  double forward_ns = 0;
  double backward_ns = 0;
};

// A stage of the model with the tensors that a micro-batch needs to pass through it.
class StageRun {
 public:
  static absl::StatusOr<StageRun> Create(const ModelConfig& config, const StageRange& range) {
    PENSTOCK_ASSIGN_OR_RETURN(auto stage, MakeTransformerStage(config, range, /*seed=*/0, at::kCPU));
    return StageRun(config, range, std::move(stage));
  }

  Stage& stage() { return *stage_; }

  absl::Status Prepare(const MicroBatch& shape) {
    std::vector<std::vector<int32_t>> tokens;
    for (const uint32_t length : shape.target_tokens) tokens.emplace_back(length, 0);
    PENSTOCK_ASSIGN_OR_RETURN(tokens_, MakeTokenBatch(shape, tokens, config_.vocab, at::kCPU));
    return RunTorch("a profile's input", [&] {
      std::vector<int64_t> sizes = tokens_.inputs.sizes().vec();
      sizes.push_back(config_.hidden);
      activation_ = at::linspace(-1, 1, c10::multiply_integers(sizes), at::kFloat).view(sizes);
      activation_ = activation_.to(ToScalarType(config_.dtype));
    });
  }

  absl::StatusOr<PassTimes> Once(const MicroBatch& shape, const LayerRecompute& recompute) {
    const at::Tensor none;
    const double loss_tokens = static_cast<double>(shape.computed_tokens);
    PassTimes times;
    const Clock::time_point start = Clock::now();
    PENSTOCK_ASSIGN_OR_RETURN(
        StageForward forward,
        stage_->Forward(shape, tokens_, range_.first ? none : activation_, recompute, loss_tokens));
    times.forward_ns = NanosecondsSince(start);
    const Clock::time_point middle = Clock::now();
    PENSTOCK_RETURN_IF_ERROR(stage_->Backward(std::move(forward), range_.last ? none : activation_).status());
    times.backward_ns = NanosecondsSince(middle);
    return times;
  }

  // Median of the repeats that fit into `budget_ns`, after one that warms up; at least one.
  absl::StatusOr<PassTimes> Measure(const MicroBatch& shape, const LayerRecompute& recompute,
                                    double budget_ns) {
    const Clock::time_point start = Clock::now();
    PENSTOCK_RETURN_IF_ERROR(Once(shape, recompute).status());
    std::vector<double> forward;
    std::vector<double> backward;
    do {
      PENSTOCK_ASSIGN_OR_RETURN(const PassTimes times, Once(shape, recompute));
      forward.push_back(times.forward_ns);
      backward.push_back(times.backward_ns);
    } while (forward.size() < kMostRepeats && NanosecondsSince(start) < budget_ns);
    return PassTimes{Median(forward), Median(backward)};
  }

 private:
  StageRun(const ModelConfig& config, const StageRange& range, std::unique_ptr<Stage> stage)
      : config_(config), range_(range), stage_(std::move(stage)) {}

  ModelConfig config_;
  StageRange range_;
  std::unique_ptr<Stage> stage_;
  TokenBatch tokens_;
  at::Tensor activation_;
};

struct MeasuredPasses {
  std::vector<CostPoint> forward;
  // Sums over all shapes.
  double forward_ns = 0;
  double backward_none_ns = 0;
  double backward_full_ns = 0;
};

// `with_recompute`: measure the backward pass with full recompute too.
absl::StatusOr<MeasuredPasses> MeasureShapes(StageRun& run, const std::vector<MicroBatch>& shapes,
                                             bool with_recompute, double budget_ns) {
  const Clock::time_point start = Clock::now();
  const double share_ns = budget_ns / static_cast<double>(shapes.size() * (with_recompute ? 2 : 1));
  MeasuredPasses passes;
  for (const MicroBatch& shape : shapes) {
    if (passes.forward.size() >= kFewestShapes && NanosecondsSince(start) > budget_ns) break;
    PENSTOCK_RETURN_IF_ERROR(run.Prepare(shape));
    PENSTOCK_ASSIGN_OR_RETURN(const PassTimes none, run.Measure(shape, LayerRecompute(), share_ns));
    passes.forward.push_back({static_cast<double>(shape.computed_tokens), SquaresOf(shape), none.forward_ns});
    passes.forward_ns += none.forward_ns;
    passes.backward_none_ns += none.backward_ns;
    if (!with_recompute) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const PassTimes full, run.Measure(shape, {.full = 1}, share_ns));
    passes.backward_full_ns += full.backward_ns;
  }
  return passes;
}

MeasuredLayer ToLayer(const MeasuredPasses& passes) {
  MeasuredLayer layer;
  layer.forward = FitTime(passes.forward);
  layer.backward_ratio_none = passes.backward_none_ns / passes.forward_ns;
  layer.backward_ratio_full = passes.backward_full_ns / passes.forward_ns;
  return layer;
}

// Head and embedding do not care how tokens are divided into rows.
void ForgetSquares(MeasuredPasses& passes) {
  for (CostPoint& point : passes.forward) point.squares = 0;
}

absl::StatusOr<double> MeasureOptimizer(StageRun& run, double parameter_bytes) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto optimizer, AdamW::Create(TrainingConfig(), run.stage().parameters()));
  std::vector<double> times;
  for (uint64_t step = 0; step < 4; ++step) {
    const Clock::time_point start = Clock::now();
    PENSTOCK_RETURN_IF_ERROR(optimizer->SumOfSquaredGradients().status());
    PENSTOCK_RETURN_IF_ERROR(optimizer->Step(step, 1));
    run.stage().ZeroGradients();
    times.push_back(NanosecondsSince(start));
  }
  return Median(times) / parameter_bytes;
}

absl::Status MeasureLayer(const ModelConfig& config, const std::vector<MicroBatch>& shapes, double budget_ns,
                          MeasuredProfile& profile) {
  PENSTOCK_ASSIGN_OR_RETURN(StageRun run, StageRun::Create(config, {0, 1, false, false}));
  PENSTOCK_ASSIGN_OR_RETURN(const MeasuredPasses passes, MeasureShapes(run, shapes, true, budget_ns));
  profile.layer = ToLayer(passes);
  profile.layer.parameter_bytes = LayerParameterBytes(config);
  profile.layer.bytes = LayerTokenBytes(config);
  PENSTOCK_ASSIGN_OR_RETURN(profile.optimizer_ns_per_parameter_byte,
                            MeasureOptimizer(run, profile.layer.parameter_bytes));
  return absl::OkStatus();
}

absl::Status MeasureHead(const ModelConfig& config, const std::vector<MicroBatch>& shapes, double budget_ns,
                         MeasuredProfile& profile) {
  PENSTOCK_ASSIGN_OR_RETURN(StageRun run, StageRun::Create(config, {config.layers, 0, false, true}));
  PENSTOCK_ASSIGN_OR_RETURN(MeasuredPasses passes, MeasureShapes(run, shapes, false, budget_ns));
  ForgetSquares(passes);
  passes.backward_full_ns = passes.backward_none_ns;  // the head is never recomputed
  profile.head = ToLayer(passes);
  profile.head.parameter_bytes = HeadParameterBytes(config);
  profile.head.bytes = HeadTokenBytes(config);
  return absl::OkStatus();
}

absl::Status MeasureEmbedding(const ModelConfig& config, const std::vector<MicroBatch>& shapes,
                              double budget_ns, MeasuredProfile& profile) {
  PENSTOCK_ASSIGN_OR_RETURN(StageRun run, StageRun::Create(config, {0, 0, true, false}));
  PENSTOCK_ASSIGN_OR_RETURN(MeasuredPasses passes, MeasureShapes(run, shapes, false, budget_ns));
  ForgetSquares(passes);
  // The profile has one time for both directions: their mean.
  const double mean = (1 + passes.backward_none_ns / passes.forward_ns) / 2;
  for (CostPoint& point : passes.forward) point.ns *= mean;
  profile.embedding_forward = FitTime(passes.forward);
  profile.embedding_parameter_bytes = EmbeddingParameterBytes(config);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MeasuredProfile> MeasureProfile(const ModelConfig& config, double seconds, int threads) {
  at::set_num_threads(threads);
  const double budget_ns = seconds * 1e9;
  const std::vector<MicroBatch> shapes = MeasuredShapes(config.max_sequence_length, kMostTokens);
  MeasuredProfile profile;
  PENSTOCK_RETURN_IF_ERROR(MeasureLayer(config, shapes, kLayerShare * budget_ns, profile));
  PENSTOCK_RETURN_IF_ERROR(MeasureHead(config, shapes, kHeadShare * budget_ns, profile));
  PENSTOCK_RETURN_IF_ERROR(MeasureEmbedding(config, shapes, kEmbeddingShare * budget_ns, profile));
  PENSTOCK_ASSIGN_OR_RETURN(profile.link, MeasureLoopbackLink());
  profile.state_bytes_per_parameter_byte = StateBytesPerParameterByte(config.dtype);
  profile.sharded_state_bytes_per_parameter_byte = OptimizerBytesPerParameterByte(config.dtype);
  profile.memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  return profile;
}

}  // namespace penstock::worker
