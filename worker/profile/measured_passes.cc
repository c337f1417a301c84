#include "worker/profile/measured_passes.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

void AddLayerPasses(const TokenFigures& tokens, const std::vector<PassTimes>& kinds, MeasuredPasses& passes) {
  const PassTimes& split = kinds[kSplit];
  const double input = split.backward_ns / (split.backward_ns + split.weight_ns);
  passes.backward_input.push_back({tokens, kinds[kPlain].backward_ns * input});
  passes.backward_weight.push_back({tokens, kinds[kPlain].backward_ns * (1 - input)});
  passes.backward_input_ns += split.backward_ns;
  passes.backward_weight_ns += split.weight_ns;
  passes.backward_selective_ns += kinds[kSelective].backward_ns;
  passes.backward_full_ns += kinds[kFull].backward_ns;
}

// Of what the whole stage takes for both passes of a shape, what the rank takes.
absl::StatusOr<std::vector<double>> PartOfTime(StageRun& whole, StageRun& rank, const MicroBatch& shape,
                                               double budget_ns) {
  PENSTOCK_RETURN_IF_ERROR(whole.Prepare(shape));
  PENSTOCK_RETURN_IF_ERROR(rank.Prepare(shape));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<PassTimes> times,
                            MeasureInTurns({Turn{&whole}, Turn{&rank}}, budget_ns));
  return std::vector<double>{(times[1].forward_ns + times[1].backward_ns) /
                             (times[0].forward_ns + times[0].backward_ns)};
}

}  // namespace

absl::StatusOr<MeasuredPasses> MeasureShapes(StageRun& run, const std::vector<MicroBatch>& shapes,
                                             const FiguresOfStage& figures, bool layer, double budget_ns,
                                             const KeptPart& kept) {
  const std::vector<PassKind> kinds = layer ? KindsOfLayer() : std::vector<PassKind>(1);
  PENSTOCK_ASSIGN_OR_RETURN(const VisitedShapes visited,
                            VisitShapes(run, shapes, kinds, figures, budget_ns, kept));
  MeasuredPasses passes;
  passes.interference = visited.interference;
  for (size_t i = 0; i < visited.shapes.size(); ++i) {
    const ShapeTimes& times = visited.shapes[i];
    const PassTimes& plain = times.kinds[kPlain];
    const TokenFigures tokens = figures(shapes[i], times.loss_tokens);
    passes.spreads.push_back(plain.spread);
    passes.forward.push_back({tokens, plain.forward_ns});
    passes.forward_ns += plain.forward_ns;
    passes.backward_none_ns += plain.backward_ns;
    if (layer) AddLayerPasses(tokens, times.kinds, passes);
  }
  return passes;
}

absl::StatusOr<TensorTime> MeasureTensorRank(StageRun& whole, StageRun& rank, int degree,
                                             const std::vector<MicroBatch>& shapes,
                                             const FiguresOfStage& figures, const MeasuredTime& form,
                                             double budget_ns, const KeptPart& kept) {
  PartFigures part(kept, whole.clocks().budget);
  const double shape_ns = budget_ns / static_cast<double>(shapes.size());
  std::vector<CostPoint> points;
  std::vector<double> parts;
  absl::Status too_large;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const MicroBatch& shape = shapes[i];
    if (points.size() >= kFewestShapes && part.SpentNs() > budget_ns) break;
    const absl::StatusOr<std::vector<double>> of_whole =
        part.Get(absl::StrCat(i), 1, [&] { return PartOfTime(whole, rank, shape, shape_ns); });
    // A small GPU may have room for the whole stage, but not for both.
    if (absl::IsResourceExhausted(of_whole.status())) {
      too_large = of_whole.status();
      continue;
    }
    PENSTOCK_RETURN_IF_ERROR(of_whole.status());
    parts.push_back(of_whole->front());
    PENSTOCK_RETURN_IF_ERROR(whole.Prepare(shape));
    const TokenFigures tokens = figures(shape, whole.loss_tokens());
    points.push_back({tokens, form(tokens) * of_whole->front()});
  }
  if (points.size() < std::min(kFewestShapes, shapes.size())) return too_large;
  return TensorTime{.degree = degree, .efficiency = 1 / (degree * Median(parts)), .forward = FitTime(points)};
}

std::vector<MicroBatch> Spread(const std::vector<MicroBatch>& shapes, size_t count) {
  constexpr double kGolden = 0.381966;
  auto step = static_cast<size_t>(std::ceil(kGolden * static_cast<double>(count)));
  while (std::gcd(step, count) > 1) ++step;
  std::vector<MicroBatch> spread;
  for (size_t i = 0; i < count; ++i) spread.push_back(shapes[(count - 1 + i * step) % count]);
  return spread;
}

}  // namespace penstock::worker
