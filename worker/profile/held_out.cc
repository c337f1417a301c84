#include "worker/profile/held_out.h"

#include <ATen/Parallel.h>

#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "worker/model/architecture.h"
#include "worker/model/stage_checks.h"
#include "worker/profile/context_shares.h"
#include "worker/profile/held_out_shapes.h"
#include "worker/profile/shape_visits.h"
#include "worker/profile/stage_run.h"

namespace penstock::worker {
namespace {

constexpr int64_t kMostHeldOutTokens = 8192;
constexpr double kLayersShareOfTime = 0.75;
// Of the time of whole layers, beside it, for each number of context ranks.
constexpr double kSharesOfTime = 0.3;

struct HeldOutPartRun {
  HeldOutPart part;
  StageRange range;
  double budget_ns = 0;
  // Null: that of all parts but layers without experts.
  const ModelConfig* model = nullptr;
  // Above 1: shares of one of so many context ranks.
  int contexts = 1;
};

GroupPlace PlaceOf(const HeldOutPartRun& part) {
  if (part.contexts == 1) return {};
  return {.context = MeasuredContext(part.contexts), .contexts = part.contexts};
}

// A pass of the shape, without its kind and time.
HeldOutPass PassOf(const HeldOutPartRun& part, const MicroBatch& shape, int64_t loss_tokens) {
  HeldOutPass pass = {.part = part.part,
                      .packed = shape.layout == Layout::kPacked,
                      .samples = {},
                      .context = static_cast<uint32_t>(PlaceOf(part).context),
                      .contexts = static_cast<uint32_t>(part.contexts),
                      .loss_tokens = static_cast<double>(loss_tokens)};
  for (size_t i = 0; i < shape.sample_ids.size(); ++i) {
    pass.samples.push_back({.source = shape.input_tokens[i],
                            .target = shape.target_tokens[i],
                            .span = shape.spans.empty() ? 1 : shape.spans[i].ranks});
  }
  return pass;
}

// The head is not recomputed, and its backward pass is one.
std::vector<PassKind> KindsOf(HeldOutPart part) {
  return part == HeldOutPart::kHead ? std::vector<PassKind>(1) : KindsOfLayer();
}

void AddPasses(const HeldOutPass& shape, const std::vector<PassTimes>& times, HeldOutTimes& held_out) {
  const auto add = [&](HeldOutKind kind, HeldOutRecompute recompute, double ns) {
    HeldOutPass& pass = held_out.passes.emplace_back(shape);
    pass.kind = kind;
    pass.recompute = recompute;
    pass.duration_ns = ns;
  };
  if (shape.part == HeldOutPart::kHead)
    return add(HeldOutKind::kBoth, HeldOutRecompute::kNone,
               times[kPlain].forward_ns + times[kPlain].backward_ns);
  add(HeldOutKind::kForward, HeldOutRecompute::kNone, times[kPlain].forward_ns);
  add(HeldOutKind::kBackward, HeldOutRecompute::kNone, times[kPlain].backward_ns);
  add(HeldOutKind::kBackwardInput, HeldOutRecompute::kNone, times[kSplit].backward_ns);
  add(HeldOutKind::kBackwardWeight, HeldOutRecompute::kNone, times[kSplit].weight_ns);
  add(HeldOutKind::kBackward, HeldOutRecompute::kSelective, times[kSelective].backward_ns);
  add(HeldOutKind::kBackward, HeldOutRecompute::kFull, times[kFull].backward_ns);
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
    config_ = WithExpertsEverywhere(config);
    // As measure.cc: neither the first nor the last layer of a stack.
    if (config.architecture != Architecture::kT5) return;
    config_.encoder_layers = 2;
    config_.layers = 4;
  }

  absl::Status Measure(const HeldOutPartRun& part) {
    const ModelConfig& model = part.model != nullptr ? *part.model : config_;
    PENSTOCK_ASSIGN_OR_RETURN(
        StageRun run, StageRun::Create(model, part.range, PlaceOf(part), copies_, place_, time_.clocks()));
    const std::vector<MicroBatch> shapes =
        part.contexts > 1 ? HeldOutShares(model, part.contexts, kMostHeldOutTokens) : shapes_;
    // No sample is long enough to be divided.
    if (shapes.empty()) return absl::OkStatus();
    KeptTimes keeps_nothing;
    PENSTOCK_ASSIGN_OR_RETURN(const VisitedShapes visited,
                              VisitShapes(run, shapes, KindsOf(part.part), /*figures=*/nullptr,
                                          part.budget_ns, {&keeps_nothing, ""}));
    interference_.Add(visited.interference);
    for (size_t i = 0; i < visited.shapes.size(); ++i) {
      const ShapeTimes& times = visited.shapes[i];
      AddPasses(PassOf(part, shapes[i], times.loss_tokens), times.kinds, times_);
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
  for (const int contexts : settings.context_ranks)
    PENSTOCK_RETURN_IF_ERROR(CheckContextRanks(config, contexts));
  at::set_num_threads(settings.threads.threads);
  HeldOutMeasurement measurement(config, settings, device, std::move(clock));
  const ModelConfig& measured = measurement.config();
  const bool t5 = config.architecture == Architecture::kT5;
  const double layers_ns = kLayersShareOfTime * settings.seconds * 1e9;
  if (t5) {
    PENSTOCK_RETURN_IF_ERROR(
        measurement.Measure({HeldOutPart::kEncoderLayer, {0, 1, false, false}, layers_ns / 2}));
  }
  const bool dense = !config.dense_layers.empty();
  const double layer_ns = t5 || dense ? layers_ns / 2 : layers_ns;
  const int64_t layer = t5 ? measured.layers - 1 : 0;
  PENSTOCK_RETURN_IF_ERROR(measurement.Measure({HeldOutPart::kLayer, {layer, 1, false, false}, layer_ns}));
  for (const int contexts : settings.context_ranks) {
    PENSTOCK_RETURN_IF_ERROR(measurement.Measure({.part = HeldOutPart::kLayer,
                                                  .range = {layer, 1, false, false},
                                                  .budget_ns = kSharesOfTime * layer_ns,
                                                  .contexts = contexts}));
  }
  if (dense) {
    const ModelConfig without = WithoutExperts(config);
    PENSTOCK_RETURN_IF_ERROR(
        measurement.Measure({HeldOutPart::kDenseLayer, {0, 1, false, false}, layer_ns, &without}));
  }
  PENSTOCK_RETURN_IF_ERROR(measurement.Measure({HeldOutPart::kHead,
                                                {measured.layers, 0, false, true},
                                                (1 - kLayersShareOfTime) * settings.seconds * 1e9}));
  return std::move(measurement).Finish();
}

}  // namespace penstock::worker
