#include "worker/profile/held_out.h"

#include <ATen/Parallel.h>

#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "worker/profile/held_out_shapes.h"
#include "worker/profile/measured_passes.h"
#include "worker/profile/stage_run.h"

namespace penstock::worker {
namespace {

constexpr int64_t kMostHeldOutTokens = 8192;
constexpr size_t kFewestHeldOutShapes = 4;
constexpr double kLayersShareOfTime = 0.75;

struct HeldOutPartRun {
  HeldOutPart part;
  StageRange range;
  double budget_ns = 0;
};

// A pass of the shape, without its kind and time.
HeldOutPass PassOf(HeldOutPart part, const MicroBatch& shape, int64_t loss_tokens) {
  HeldOutPass pass = {.part = part,
                      .packed = shape.layout == Layout::kPacked,
                      .samples = {},
                      .loss_tokens = static_cast<double>(loss_tokens)};
  for (size_t i = 0; i < shape.sample_ids.size(); ++i)
    pass.samples.push_back({.source = shape.input_tokens[i], .target = shape.target_tokens[i]});
  return pass;
}

// The kinds of passes of one shape, as they are measured in turns.
std::vector<Turn> TurnsOf(StageRun& run, HeldOutPart part) {
  std::vector<Turn> turns = {{&run, PassKind()}};
  // The head is not recomputed, and its backward pass is one.
  if (part == HeldOutPart::kHead) return turns;
  turns.push_back({&run, {.split = true}});
  turns.push_back({&run, {.recompute = {.selective = 1}}});
  turns.push_back({&run, {.recompute = {.full = 1}}});
  return turns;
}

void AddPasses(const HeldOutPass& shape, const std::vector<PassTimes>& times, HeldOutTimes& held_out) {
  const auto add = [&](HeldOutKind kind, HeldOutRecompute recompute, double ns) {
    HeldOutPass& pass = held_out.passes.emplace_back(shape);
    pass.kind = kind;
    pass.recompute = recompute;
    pass.duration_ns = ns;
  };
  if (shape.part == HeldOutPart::kHead)
    return add(HeldOutKind::kBoth, HeldOutRecompute::kNone, times[0].forward_ns + times[0].backward_ns);
  add(HeldOutKind::kForward, HeldOutRecompute::kNone, times[0].forward_ns);
  add(HeldOutKind::kBackward, HeldOutRecompute::kNone, times[0].backward_ns);
  add(HeldOutKind::kBackwardInput, HeldOutRecompute::kNone, times[1].backward_ns);
  add(HeldOutKind::kBackwardWeight, HeldOutRecompute::kNone, times[1].weight_ns);
  add(HeldOutKind::kBackward, HeldOutRecompute::kSelective, times[2].backward_ns);
  add(HeldOutKind::kBackward, HeldOutRecompute::kFull, times[3].backward_ns);
}

class HeldOutMeasurement {
 public:
  HeldOutMeasurement(const ModelConfig& config, const HeldOutSettings& settings, const MeasuredDevice& device,
                     NanosecondClock clock)
      : config_(config),
        place_(device.place),
        shapes_(HeldOutShapes(config, kMostHeldOutTokens)),
        copies_(config.encoder_layers + config.layers),
        time_(device, settings.threads, std::move(clock)) {
    // As measure.cc: neither the first nor the last layer of a stack.
    if (config.architecture != Architecture::kT5) return;
    config_.encoder_layers = 2;
    config_.layers = 4;
  }

  absl::Status Measure(const HeldOutPartRun& part) {
    PENSTOCK_ASSIGN_OR_RETURN(StageRun run,
                              StageRun::Create(config_, part.range, {}, copies_, place_, time_.clocks()));
    const double start = run.clocks().budget();
    const double each_ns = part.budget_ns / static_cast<double>(shapes_.size());
    for (size_t i = 0; i < shapes_.size(); ++i) {
      if (i >= kFewestHeldOutShapes && run.clocks().budget() - start > part.budget_ns) break;
      const absl::Status measured = MeasureShape(run, part.part, shapes_[i], each_ns);
      if (absl::IsResourceExhausted(measured) && i >= kFewestHeldOutShapes) break;
      PENSTOCK_RETURN_IF_ERROR(measured);
    }
    return absl::OkStatus();
  }

  HeldOutTimes Finish() && {
    const double scale = time_.Scale();
    for (HeldOutPass& pass : times_.passes) pass.duration_ns *= scale;
    times_.disturbance = interference_.Describe();
    return std::move(times_);
  }

  const ModelConfig& config() const { return config_; }

 private:
  absl::Status MeasureShape(StageRun& run, HeldOutPart part, const MicroBatch& shape, double budget_ns) {
    PENSTOCK_RETURN_IF_ERROR(run.Prepare(shape));
    const std::vector<Turn> turns = TurnsOf(run, part);
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<PassTimes> times,
                              MeasureQuietly(turns, budget_ns, interference_));
    AddPasses(PassOf(part, shape, run.loss_tokens()), times, times_);
    return absl::OkStatus();
  }

  ModelConfig config_;
  const at::Device place_;
  const std::vector<MicroBatch> shapes_;
  // Of a layer, so that caches hold no more of it than in training.
  const int64_t copies_;
  MeasuringTime time_;
  Interference interference_;
  HeldOutTimes times_;
};

}  // namespace

absl::StatusOr<HeldOutTimes> MeasureHeldOut(const ModelConfig& config, const HeldOutSettings& settings,
                                            const MeasuredDevice& device, NanosecondClock clock) {
  at::set_num_threads(settings.threads.threads);
  HeldOutMeasurement measurement(config, settings, device, std::move(clock));
  const ModelConfig& measured = measurement.config();
  const bool t5 = config.architecture == Architecture::kT5;
  const double layers_ns = kLayersShareOfTime * settings.seconds * 1e9;
  if (t5) {
    PENSTOCK_RETURN_IF_ERROR(
        measurement.Measure({HeldOutPart::kEncoderLayer, {0, 1, false, false}, layers_ns / 2}));
  }
  const int64_t layer = t5 ? measured.layers - 1 : 0;
  PENSTOCK_RETURN_IF_ERROR(
      measurement.Measure({HeldOutPart::kLayer, {layer, 1, false, false}, t5 ? layers_ns / 2 : layers_ns}));
  PENSTOCK_RETURN_IF_ERROR(measurement.Measure({HeldOutPart::kHead,
                                                {measured.layers, 0, false, true},
                                                (1 - kLayersShareOfTime) * settings.seconds * 1e9}));
  return std::move(measurement).Finish();
}

}  // namespace penstock::worker
