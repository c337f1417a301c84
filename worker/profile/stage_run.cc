#include "worker/profile/stage_run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/ratio/ratio.h"
#include "common/status/status_macros.h"
#include "worker/memory/tensor_memory.h"
#include "worker/model/attention_shape.h"
#include "worker/model/boundary_shape.h"
#include "worker/model/transformer_stage.h"
#include "worker/program/share.h"
#include "worker/torch/boundary.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

constexpr size_t kMostRepeats = 9;
// Of parameters: more, with as many of gradients, than caches keep of them until the next micro-batch.
constexpr double kMostCachedBytes = 64 << 20;
// Passes between two readings of the clock, of a GPU: a stage's layers follow each other without the host
// waiting, so that starting the kernels of one is hidden behind those of the layer before.
constexpr size_t kPassesInARow = 4;
// Passes that take longer need none before them that warms caches up.
constexpr double kLongNs = 20e6;

PassTimes Medians(const std::vector<PassTimes>& repeats) {
  const auto of = [&](double PassTimes::*member) {
    std::vector<double> values;
    values.reserve(repeats.size());
    for (const PassTimes& times : repeats) values.push_back(times.*member);
    return Median(std::move(values));
  };
  PassTimes medians = {of(&PassTimes::forward_ns), of(&PassTimes::backward_ns), of(&PassTimes::weight_ns)};
  std::vector<double> distances;
  for (const PassTimes& times : repeats) distances.push_back(std::abs(times.forward_ns - medians.forward_ns));
  medians.spread = Ratio(Median(std::move(distances)), medians.forward_ns);
  return medians;
}

}  // namespace

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double ParameterBytes(const Stage& stage) {
  double bytes = 0;
  for (const NamedParameter& parameter : stage.parameters())
    bytes += static_cast<double>(parameter.value.nbytes());
  return bytes;
}

StageRun::StageRun(const ModelConfig& config, const StageRange& range, std::unique_ptr<LoneRank> rank,
                   at::Device place, MeasuringClocks clocks, std::vector<std::unique_ptr<Stage>> stages)
    : config_(config),
      range_(range),
      rank_(std::move(rank)),
      place_(place),
      clocks_(std::move(clocks)),
      passes_in_a_row_(place.is_cpu() ? 1 : kPassesInARow),
      stages_(std::move(stages)) {}

absl::StatusOr<StageRun> StageRun::Create(const ModelConfig& config, const StageRange& range,
                                          const GroupPlace& group, int64_t most, at::Device place,
                                          const MeasuringClocks& clocks) {
  auto rank = std::make_unique<LoneRank>(group);
  std::vector<std::unique_ptr<Stage>> stages;
  double bytes = 0;
  do {
    PENSTOCK_ASSIGN_OR_RETURN(auto stage, MakeTransformerStage(config, range, /*seed=*/0, place, *rank));
    bytes += ParameterBytes(*stage);
    // Memory that nobody has written is not there yet.
    stage->ZeroGradients();
    stages.push_back(std::move(stage));
  } while (static_cast<int64_t>(stages.size()) < most && bytes < kMostCachedBytes);
  return StageRun(config, range, std::move(rank), place, clocks, std::move(stages));
}

// Those that divide experts have as many tokens each.
MicroBatch StageRun::WithSpans(MicroBatch shape) const {
  const GroupPlace place = rank_->place();
  if (place.contexts == 1 || !shape.spans.empty()) return shape;
  const Span own = {static_cast<uint32_t>(place.context), 1};
  shape.spans.assign(RowLengths(shape, Side::kTarget).size(), own);
  return shape;
}

absl::Status StageRun::Prepare(const MicroBatch& given) {
  shape_ = WithSpans(given);
  // A batch of its own, so that losses of routers, where there are some, are measured too.
  for (size_t i = 0; i < shape_.sample_ids.size(); ++i)
    shape_.batch_tokens += uint64_t{shape_.input_tokens[i]} + shape_.target_tokens[i];
  const MicroBatch& shape = shape_;
  std::vector<std::vector<int32_t>> tokens;
  for (size_t i = 0; i < shape.sample_ids.size(); ++i) {
    tokens.emplace_back(size_t{shape.input_tokens[i]} + shape.target_tokens[i], 0);
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      staged_, MakeTokenBatch(shape, tokens, config_, TokenNeedsOf(config_, range_), place_, rank_->place()));
  PENSTOCK_ASSIGN_OR_RETURN(tokens_, ToDevice(staged_, place_));
  return RunTorch("a profile's input", [&] {
    input_ = range_.first ? at::Tensor() : Activation(shape, range_.first_layer);
    output_gradient_ = range_.last ? at::Tensor() : Activation(shape, range_.first_layer + range_.layers);
  });
}

absl::StatusOr<PassTimes> StageRun::Once(const PassKind& kind) {
  std::vector<StageInFlight> passes(passes_in_a_row_);
  for (StageInFlight& pass : passes) pass.stage = stages_[turn_++ % stages_.size()].get();
  // Mean time of a pass.
  const auto time_each = [&](const auto& run) -> absl::StatusOr<double> {
    const double start = clocks_.work();
    for (StageInFlight& pass : passes) PENSTOCK_RETURN_IF_ERROR(run(pass));
    return (clocks_.work() - start) / static_cast<double>(passes.size());
  };
  PassTimes times;
  PENSTOCK_ASSIGN_OR_RETURN(times.forward_ns,
                            time_each([&](StageInFlight& pass) { return Forward(kind.recompute, pass); }));
  PENSTOCK_ASSIGN_OR_RETURN(times.backward_ns, time_each([&](StageInFlight& pass) {
                              return kind.split ? BackwardInput(pass) : Backward(pass);
                            }));
  if (!kind.split) return times;
  PENSTOCK_ASSIGN_OR_RETURN(times.weight_ns, time_each([](StageInFlight& pass) {
                              return pass.stage->BackwardWeight(std::move(pass.put_aside), {});
                            }));
  return times;
}

// What a worker does at a LOAD, and first of all in the passes of stages without one: there it is next to
// nothing, once for all layers of the stage, and no part of what one of them takes.
absl::Status StageRun::Load(StageInFlight& pass) const {
  pass.tokens = tokens_;
  if (!TokenNeedsOf(config_, range_).any()) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(pass.tokens, ToDevice(staged_, place_));
  return absl::OkStatus();
}

absl::Status StageRun::Forward(const LayerRecompute& recompute, StageInFlight& pass) const {
  PENSTOCK_RETURN_IF_ERROR(Load(pass));
  PENSTOCK_ASSIGN_OR_RETURN(pass.forward, pass.stage->Forward(shape_, pass.tokens, input_, recompute,
                                                              static_cast<double>(shape_.computed_tokens),
                                                              /*needed=*/{}));
  return absl::OkStatus();
}

bool StageRun::CountsBytes() const { return TensorBytes(place_) > 0; }

double StageRun::PassedOnBytes() const {
  if (!CarriesBothStreams(config_, range_.first_layer)) return 0;
  return static_cast<double>(SourceTokens(shape_) * config_.hidden * input_.element_size());
}

absl::StatusOr<PassBytes> StageRun::Bytes(const PassKind& kind) {
  Stage& stage = *stages_[turn_++ % stages_.size()];
  const int64_t before = TensorBytes(place_);
  const auto since = [&](int64_t bytes) { return static_cast<double>(bytes - before) - PassedOnBytes(); };
  const auto copy_of = [](const at::Tensor& tensor) {
    return CallTorch("a profile's input", [&] { return tensor.clone(); });
  };
  PENSTOCK_ASSIGN_OR_RETURN(at::Tensor input, copy_of(input_));
  PENSTOCK_ASSIGN_OR_RETURN(TokenBatch tokens, ToDevice(staged_, place_));
  PENSTOCK_ASSIGN_OR_RETURN(StageForward forward,
                            stage.Forward(shape_, tokens, input, kind.recompute,
                                          static_cast<double>(shape_.computed_tokens), /*needed=*/{}));
  input.reset();
  tokens = {};
  forward.output.reset();
  PassBytes bytes;
  bytes.kept = since(TensorBytes(place_));
  ResetPeakTensorBytes(place_);
  PENSTOCK_ASSIGN_OR_RETURN(at::Tensor output_gradient, copy_of(output_gradient_));
  SplitBackward backward;
  if (kind.split) {
    PENSTOCK_ASSIGN_OR_RETURN(backward, stage.BackwardInput(std::move(forward), output_gradient, {}));
  } else {
    PENSTOCK_ASSIGN_OR_RETURN(backward.input_gradient,
                              stage.Backward(std::move(forward), output_gradient, {}, {}));
  }
  output_gradient.reset();
  const auto input_gradient_bytes = static_cast<double>(backward.input_gradient.nbytes());
  bytes.backward_peak = since(PeakTensorBytes(place_)) - input_gradient_bytes;
  bytes.put_aside = since(TensorBytes(place_)) - input_gradient_bytes;
  if (!kind.split) return bytes;
  PENSTOCK_RETURN_IF_ERROR(stage.BackwardWeight(std::move(backward.put_aside), {}));
  return bytes;
}

absl::Status StageRun::Backward(StageInFlight& pass) const {
  return pass.stage->Backward(std::exchange(pass.forward, {}), output_gradient_, {}, {}).status();
}

absl::Status StageRun::BackwardInput(StageInFlight& pass) const {
  PENSTOCK_ASSIGN_OR_RETURN(SplitBackward split,
                            pass.stage->BackwardInput(std::exchange(pass.forward, {}), output_gradient_, {}));
  pass.put_aside = std::move(split.put_aside);
  return absl::OkStatus();
}

at::Tensor StageRun::Activation(const MicroBatch& shape, int64_t layer) const {
  const std::vector<int64_t> sizes = BoundaryShape(shape, config_, layer, rank_->place());
  return at::linspace(-1, 1, c10::multiply_integers(sizes), at::kFloat)
      .view(sizes)
      .to(place_, ToScalarType(config_.dtype));
}

absl::StatusOr<std::vector<PassTimes>> MeasureInTurns(absl::Span<const Turn> turns, double budget_ns) {
  const NanosecondClock& clock = turns.front().run->clocks().budget;
  const double start = clock();
  std::vector<std::vector<PassTimes>> repeats(turns.size());
  const auto round = [&](const auto& counts) -> absl::Status {
    for (size_t i = 0; i < turns.size(); ++i) {
      PENSTOCK_ASSIGN_OR_RETURN(const PassTimes times, turns[i].run->Once(turns[i].kind));
      if (counts(times)) repeats[i].push_back(times);
    }
    return absl::OkStatus();
  };
  PENSTOCK_RETURN_IF_ERROR(
      round([](const PassTimes& times) { return times.forward_ns + times.backward_ns > kLongNs; }));
  const auto all = [](const PassTimes&) { return true; };
  const auto is_any_empty = [&] {
    return std::ranges::any_of(repeats, [](const auto& of_turn) { return of_turn.empty(); });
  };
  while (is_any_empty() || (repeats.front().size() < kMostRepeats && clock() - start < budget_ns))
    PENSTOCK_RETURN_IF_ERROR(round(all));
  std::vector<PassTimes> medians;
  medians.reserve(turns.size());
  for (const std::vector<PassTimes>& of_turn : repeats) medians.push_back(Medians(of_turn));
  return medians;
}

}  // namespace penstock::worker
