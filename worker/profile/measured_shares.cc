#include "worker/profile/measured_shares.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/profile/context_shares.h"

namespace penstock::worker {
namespace {

struct FormsOfLayer {
  MeasuredTime forward;
  MeasuredTime backward_input;
  MeasuredTime backward_weight;
};

// Of a share over the whole shape: forward and backward passes; and which part of a backward pass is that of
// the input.
constexpr size_t kFiguresOfShare = 3;

absl::StatusOr<std::vector<double>> MeasureShare(StageRun& whole, StageRun& rank, const MicroBatch& shape,
                                                 double budget_ns) {
  PENSTOCK_RETURN_IF_ERROR(whole.Prepare(shape));
  PENSTOCK_RETURN_IF_ERROR(rank.Prepare(DividedShape(shape, rank.place().contexts)));
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::vector<PassTimes> times,
      MeasureInTurns({Turn{&whole}, Turn{&rank}, Turn{&rank, {.split = true}}}, budget_ns));
  const PassTimes& split = times[2];
  return std::vector<double>{times[1].forward_ns / times[0].forward_ns,
                             times[1].backward_ns / times[0].backward_ns,
                             split.backward_ns / (split.backward_ns + split.weight_ns)};
}

void AddPoints(const TokenFigures& share, const TokenFigures& whole, const FormsOfLayer& forms,
               const std::vector<double>& measured, LayerPoints& points) {
  const double backward = measured[1] * (forms.backward_input(whole) + forms.backward_weight(whole));
  points.forward.push_back({share, measured[0] * forms.forward(whole)});
  points.backward_input.push_back({share, measured[2] * backward});
  // No keys or values of others go into gradients of weights.
  TokenFigures weights = share;
  weights.divided_rows = 0;
  points.backward_weight.push_back({weights, (1 - measured[2]) * backward});
}

}  // namespace

void LayerPoints::Add(const LayerPoints& more) {
  forward = Joined(std::move(forward), more.forward);
  backward_input = Joined(std::move(backward_input), more.backward_input);
  backward_weight = Joined(std::move(backward_weight), more.backward_weight);
}

std::vector<CostPoint> Joined(std::vector<CostPoint> points, const std::vector<CostPoint>& more) {
  points.insert(points.end(), more.begin(), more.end());
  return points;
}

absl::StatusOr<LayerPoints> MeasureShares(StageRun& whole, StageRun& rank,
                                          absl::Span<const MicroBatch> shapes, const MeasuredPasses& passes,
                                          const ShareMeasurement& measurement) {
  const int contexts = rank.place().contexts;
  const std::vector<MicroBatch> long_enough = ShapesToDivide(shapes, contexts);
  const std::vector<MicroBatch> divided = Spread(long_enough, long_enough.size());
  LayerPoints points;
  if (divided.empty()) return points;
  const FormsOfLayer forms = {FitTime(passes.forward), FitTime(passes.backward_input),
                              FitTime(passes.backward_weight)};
  PartFigures part(measurement.kept, whole.clocks().budget);
  const double shape_ns = measurement.budget_ns / static_cast<double>(divided.size());
  for (size_t i = 0; i < divided.size(); ++i) {
    if (i >= kFewestShapes && part.SpentNs() > measurement.budget_ns) break;
    const absl::StatusOr<std::vector<double>> measured = part.Get(
        absl::StrCat(i), kFiguresOfShare, [&] { return MeasureShare(whole, rank, divided[i], shape_ns); });
    // A small GPU may have room for the whole shape, but not for both.
    if (absl::IsResourceExhausted(measured.status()) && i >= kFewestShapes) break;
    PENSTOCK_RETURN_IF_ERROR(measured.status());
    AddPoints(measurement.share_figures(DividedShape(divided[i], contexts), 0),
              measurement.figures(divided[i], 0), forms, *measured, points);
  }
  return points;
}

}  // namespace penstock::worker
