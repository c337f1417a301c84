#include "worker/profile/measure.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "worker/model/boundary_shape.h"
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

constexpr int64_t kMostTokens = 16384;
constexpr size_t kFewestShapes = 4;
constexpr size_t kMostRepeats = 9;
// Shares of the time: the layer is most of every model.
constexpr double kLayerShare = 0.55;
constexpr double kHeadShare = 0.3;
constexpr double kEmbeddingShare = 0.1;
// Of parameters: more, with as many of gradients, than caches keep of them until the next micro-batch.
constexpr double kMostCachedBytes = 64 << 20;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// How the passes of a micro-batch are run.
struct PassKind {
  LayerRecompute recompute = {};
  bool split = false;
};

struct PassTimes {
  double forward_ns = 0;
  // Of a split backward pass: that of the input.
  double backward_ns = 0;
  double weight_ns = 0;
};

PassTimes Medians(const std::vector<PassTimes>& repeats) {
  const auto of = [&](double PassTimes::*member) {
    std::vector<double> values;
    values.reserve(repeats.size());
    for (const PassTimes& times : repeats) values.push_back(times.*member);
    return Median(std::move(values));
  };
  return {of(&PassTimes::forward_ns), of(&PassTimes::backward_ns), of(&PassTimes::weight_ns)};
}

double ParameterBytes(const Stage& stage) {
  double bytes = 0;
  for (const NamedParameter& parameter : stage.parameters())
    bytes += static_cast<double>(parameter.value.nbytes());
  return bytes;
}

// A stage of the model with the tensors that a micro-batch needs to pass through it. There are several alike,
// which take turns: in training a layer's parameters and gradients are out of the caches when the next
// micro-batch comes, because the other layers' have been there meanwhile.
class StageRun {
 public:
  // `most`: of stages alike.
  static absl::StatusOr<StageRun> Create(const ModelConfig& config, const StageRange& range, int64_t most,
                                         at::Device place, const NanosecondClock& clock) {
    std::vector<std::unique_ptr<Stage>> stages;
    double bytes = 0;
    do {
      PENSTOCK_ASSIGN_OR_RETURN(auto stage, MakeTransformerStage(config, range, /*seed=*/0, place));
      bytes += ParameterBytes(*stage);
      // Memory that nobody has written is not there yet.
      stage->ZeroGradients();
      stages.push_back(std::move(stage));
    } while (static_cast<int64_t>(stages.size()) < most && bytes < kMostCachedBytes);
    return StageRun(config, range, place, clock, std::move(stages));
  }

  const std::vector<std::unique_ptr<Stage>>& stages() const { return stages_; }
  const NanosecondClock& clock() const { return clock_; }
  // Positions that the loss counts, of the micro-batch that is prepared.
  int64_t loss_tokens() const { return tokens_.labels.defined() ? tokens_.labels.size(0) : 0; }

  absl::Status Prepare(const MicroBatch& shape) {
    std::vector<std::vector<int32_t>> tokens;
    for (size_t i = 0; i < shape.sample_ids.size(); ++i) {
      tokens.emplace_back(size_t{shape.input_tokens[i]} + shape.target_tokens[i], 0);
    }
    PENSTOCK_ASSIGN_OR_RETURN(const TokenBatch staged,
                              MakeTokenBatch(shape, tokens, config_, TokenNeedsOf(config_, range_), place_));
    PENSTOCK_ASSIGN_OR_RETURN(tokens_, ToDevice(staged, place_));
    return RunTorch("a profile's input", [&] {
      input_ = range_.first ? at::Tensor() : Activation(shape, range_.first_layer);
      output_gradient_ = range_.last ? at::Tensor() : Activation(shape, range_.first_layer + range_.layers);
    });
  }

  // With the next of the stages.
  absl::StatusOr<PassTimes> Once(const MicroBatch& shape, const PassKind& kind) {
    Stage& stage = *stages_[turn_++ % stages_.size()];
    PassTimes times;
    double start = clock_();
    const auto lap = [&] {
      const double now = clock_();
      return now - std::exchange(start, now);
    };
    PENSTOCK_ASSIGN_OR_RETURN(
        StageForward forward,
        stage.Forward(shape, tokens_, input_, kind.recompute, static_cast<double>(shape.computed_tokens)));
    times.forward_ns = lap();
    if (!kind.split) {
      PENSTOCK_RETURN_IF_ERROR(stage.Backward(std::move(forward), output_gradient_, {}).status());
      times.backward_ns = lap();
      return times;
    }
    PENSTOCK_ASSIGN_OR_RETURN(SplitBackward split, stage.BackwardInput(std::move(forward), output_gradient_));
    times.backward_ns = lap();
    PENSTOCK_RETURN_IF_ERROR(stage.BackwardWeight(std::move(split.put_aside), {}));
    times.weight_ns = lap();
    return times;
  }

  // Medians for each of the kinds, of the rounds that fit into `budget_ns`, after one that warms up; at least
  // one round. The kinds take turns, so that what slows the machine for a while slows all of them.
  absl::StatusOr<std::vector<PassTimes>> Measure(const MicroBatch& shape, absl::Span<const PassKind> kinds,
                                                 double budget_ns) {
    const double start = clock_();
    for (const PassKind& kind : kinds) PENSTOCK_RETURN_IF_ERROR(Once(shape, kind).status());
    std::vector<std::vector<PassTimes>> repeats(kinds.size());
    do {
      for (size_t i = 0; i < kinds.size(); ++i) {
        PENSTOCK_ASSIGN_OR_RETURN(const PassTimes times, Once(shape, kinds[i]));
        repeats[i].push_back(times);
      }
    } while (repeats.front().size() < kMostRepeats && clock_() - start < budget_ns);
    std::vector<PassTimes> medians;
    medians.reserve(kinds.size());
    for (const std::vector<PassTimes>& of_kind : repeats) medians.push_back(Medians(of_kind));
    return medians;
  }

 private:
  StageRun(const ModelConfig& config, const StageRange& range, at::Device place, NanosecondClock clock,
           std::vector<std::unique_ptr<Stage>> stages)
      : config_(config), range_(range), place_(place), clock_(std::move(clock)), stages_(std::move(stages)) {}

  // What crosses the boundary before `layer`.
  at::Tensor Activation(const MicroBatch& shape, int64_t layer) const {
    const std::vector<int64_t> sizes = BoundaryShape(shape, config_, layer);
    return at::linspace(-1, 1, c10::multiply_integers(sizes), at::kFloat)
        .view(sizes)
        .to(place_, ToScalarType(config_.dtype));
  }

  ModelConfig config_;
  StageRange range_;
  at::Device place_;
  NanosecondClock clock_;
  std::vector<std::unique_ptr<Stage>> stages_;
  size_t turn_ = 0;
  TokenBatch tokens_;
  at::Tensor input_;
  at::Tensor output_gradient_;
};

struct MeasuredPasses {
  std::vector<CostPoint> forward;
  // Sums over all shapes.
  double forward_ns = 0;
  double backward_none_ns = 0;
  double backward_selective_ns = 0;
  double backward_full_ns = 0;
  double backward_input_ns = 0;
  double backward_weight_ns = 0;
};

// Which figures of a micro-batch the time of a part may depend on.
using FiguresOfPart = std::function<TokenFigures(const StageRun& run, const MicroBatch& shape)>;

// Adds the times of one shape; of every kind of backward pass when it is a layer that is measured.
absl::Status MeasureShape(StageRun& run, const MicroBatch& shape, const FiguresOfPart& figures, bool layer,
                          double budget_ns, MeasuredPasses& passes) {
  std::vector<PassKind> kinds = {PassKind()};
  if (layer) {
    kinds.push_back({.split = true});
    kinds.push_back({.recompute = {.selective = 1}});
    kinds.push_back({.recompute = {.full = 1}});
  }
  PENSTOCK_RETURN_IF_ERROR(run.Prepare(shape));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<PassTimes> times, run.Measure(shape, kinds, budget_ns));
  passes.forward.push_back({figures(run, shape), times[0].forward_ns});
  passes.forward_ns += times[0].forward_ns;
  passes.backward_none_ns += times[0].backward_ns;
  if (!layer) return absl::OkStatus();
  passes.backward_input_ns += times[1].backward_ns;
  passes.backward_weight_ns += times[1].weight_ns;
  passes.backward_selective_ns += times[2].backward_ns;
  passes.backward_full_ns += times[3].backward_ns;
  return absl::OkStatus();
}

// `layer`: measure every kind of backward pass.
absl::StatusOr<MeasuredPasses> MeasureShapes(StageRun& run, const std::vector<MicroBatch>& shapes,
                                             const FiguresOfPart& figures, bool layer, double budget_ns) {
  const double start = run.clock()();
  MeasuredPasses passes;
  for (const MicroBatch& shape : shapes) {
    if (passes.forward.size() >= kFewestShapes && run.clock()() - start > budget_ns) break;
    const absl::Status measured =
        MeasureShape(run, shape, figures, layer, budget_ns / static_cast<double>(shapes.size()), passes);
    // The next ones are larger still: a small GPU is measured with what it has room for.
    if (absl::IsResourceExhausted(measured) && passes.forward.size() >= kFewestShapes) break;
    PENSTOCK_RETURN_IF_ERROR(measured);
  }
  return passes;
}

MeasuredLayer ToLayer(const MeasuredPasses& passes) {
  MeasuredLayer layer;
  layer.forward = FitTime(passes.forward);
  layer.backward_ratio_none = passes.backward_none_ns / passes.forward_ns;
  layer.backward_ratio_selective = passes.backward_selective_ns / passes.forward_ns;
  layer.backward_ratio_full = passes.backward_full_ns / passes.forward_ns;
  layer.backward_input_share =
      passes.backward_input_ns / (passes.backward_input_ns + passes.backward_weight_ns);
  return layer;
}

TokenFigures AllFigures(const StageRun&, const MicroBatch& shape) { return FiguresOf(shape); }

TokenFigures SourceFigures(const StageRun&, const MicroBatch& shape) {
  const TokenFigures figures = FiguresOf(shape);
  return {.source = figures.source, .source_square = figures.source_square};
}

// Head and embedding do not care how tokens are divided into rows.
TokenFigures LossFigures(const StageRun& run, const MicroBatch&) {
  return {.target = static_cast<double>(run.loss_tokens())};
}

TokenFigures EmbeddedFigures(const StageRun&, const MicroBatch& shape) {
  const TokenFigures figures = FiguresOf(shape);
  return {.target = figures.source > 0 ? figures.source : figures.target};
}

// For each byte of parameters.
absl::StatusOr<double> MeasureOptimizer(const StageRun& run) {
  std::vector<const FlatParameters*> parameters;
  double bytes = 0;
  for (const auto& stage : run.stages()) {
    parameters.push_back(&stage->flat_parameters());
    bytes += ParameterBytes(*stage);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const auto optimizer, AdamW::Create(TrainingConfig(), parameters));
  std::vector<double> times;
  for (uint64_t step = 0; step < 4; ++step) {
    const double start = run.clock()();
    PENSTOCK_RETURN_IF_ERROR(optimizer->SumsOfSquares().status());
    PENSTOCK_RETURN_IF_ERROR(optimizer->Step(step, 1));
    for (const auto& stage : run.stages()) stage->ZeroGradients();
    times.push_back(run.clock()() - start);
  }
  return Median(times) / bytes;
}

// What is measured one after the other, with its share of the time.
class Measurement {
 public:
  Measurement(const ModelConfig& config, double budget_ns, const MeasuredDevice& device,
              const NanosecondClock& clock)
      : config_(config),
        place_(device.place),
        shapes_(MeasuredShapes(config, kMostTokens)),
        layers_(config.encoder_layers + config.layers),
        budget_ns_(budget_ns),
        clock_(AfterWaiting(device.wait, clock)) {
    // Layers that are neither the first nor the last of their stack have no embedding and no final norm.
    if (!IsT5()) return;
    config_.encoder_layers = 2;
    config_.layers = 4;
  }

  bool IsT5() const { return config_.architecture == Architecture::kT5; }

  absl::StatusOr<MeasuredLayer> Encoder() {
    PENSTOCK_ASSIGN_OR_RETURN(StageRun run, Create({0, 1, false, false}));
    PENSTOCK_ASSIGN_OR_RETURN(
        const MeasuredPasses passes,
        MeasureShapes(run, shapes_, SourceFigures, /*layer=*/true, kLayerShare / 2 * budget_ns_));
    MeasuredLayer layer = ToLayer(passes);
    layer.parameter_bytes = EncoderParameterBytes(config_);
    layer.bytes = EncoderLayerBytes(config_);
    return layer;
  }

  absl::Status Decoder(MeasuredProfile& profile) {
    const int64_t number = IsT5() ? config_.layers - 1 : 0;
    PENSTOCK_ASSIGN_OR_RETURN(StageRun run, Create({number, 1, false, false}));
    const double share = IsT5() ? kLayerShare / 2 : kLayerShare;
    PENSTOCK_ASSIGN_OR_RETURN(const MeasuredPasses passes,
                              MeasureShapes(run, shapes_, AllFigures, /*layer=*/true, share * budget_ns_));
    profile.layer = ToLayer(passes);
    profile.layer.parameter_bytes = DecoderParameterBytes(config_);
    profile.layer.bytes = DecoderLayerBytes(config_);
    PENSTOCK_ASSIGN_OR_RETURN(profile.optimizer_ns_per_parameter_byte, MeasureOptimizer(run));
    return absl::OkStatus();
  }

  absl::StatusOr<MeasuredLayer> Head() {
    PENSTOCK_ASSIGN_OR_RETURN(StageRun run, Create({config_.layers, 0, false, true}));
    PENSTOCK_ASSIGN_OR_RETURN(
        const MeasuredPasses passes,
        MeasureShapes(run, shapes_, LossFigures, /*layer=*/false, kHeadShare * budget_ns_));
    MeasuredLayer head;
    head.forward = FitTime(passes.forward);
    // The head is never recomputed, and its weight's gradient is never put aside.
    head.backward_ratio_none = passes.backward_none_ns / passes.forward_ns;
    head.backward_ratio_selective = head.backward_ratio_full = head.backward_ratio_none;
    head.backward_input_share = 1;
    head.parameter_bytes = HeadParameterBytes(config_);
    head.bytes = HeadBytes(config_);
    return head;
  }

  absl::Status Embedding(MeasuredProfile& profile) {
    PENSTOCK_ASSIGN_OR_RETURN(StageRun run, Create({0, 0, true, false}));
    PENSTOCK_ASSIGN_OR_RETURN(
        MeasuredPasses passes,
        MeasureShapes(run, shapes_, EmbeddedFigures, /*layer=*/false, kEmbeddingShare * budget_ns_));
    // The profile has one time for both directions: their mean.
    const double mean = (1 + passes.backward_none_ns / passes.forward_ns) / 2;
    for (CostPoint& point : passes.forward) point.ns *= mean;
    profile.embedding_forward = FitTime(passes.forward);
    if (IsT5()) profile.embedding_forward.source_token_ns = profile.embedding_forward.target_token_ns;
    profile.embedding_parameter_bytes = EmbeddingParameterBytes(config_);
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<StageRun> Create(const StageRange& range) const {
    return StageRun::Create(config_, range, layers_, place_, clock_);
  }

  ModelConfig config_;
  const at::Device place_;
  const std::vector<MicroBatch> shapes_;
  const int64_t layers_;
  const double budget_ns_;
  const NanosecondClock clock_;
};

}  // namespace

absl::StatusOr<MeasuredProfile> MeasureProfile(const ModelConfig& config, double seconds, int threads,
                                               const MeasuredDevice& device, const NanosecondClock& clock) {
  at::set_num_threads(threads);
  Measurement measurement(config, seconds * 1e9, device, clock);
  MeasuredProfile profile;
  if (measurement.IsT5()) {
    PENSTOCK_ASSIGN_OR_RETURN(profile.encoder, measurement.Encoder());
  }
  PENSTOCK_RETURN_IF_ERROR(measurement.Decoder(profile));
  PENSTOCK_ASSIGN_OR_RETURN(profile.head, measurement.Head());
  PENSTOCK_RETURN_IF_ERROR(measurement.Embedding(profile));
  PENSTOCK_ASSIGN_OR_RETURN(profile.link, MeasureLink(device));
  profile.state_bytes_per_parameter_byte = StateBytesPerParameterByte(config.dtype);
  profile.sharded_state_bytes_per_parameter_byte = OptimizerBytesPerParameterByte(config.dtype);
  profile.memory_bytes = device.memory_bytes;
  return profile;
}

}  // namespace penstock::worker
