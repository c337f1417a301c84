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

constexpr size_t kFewestShapes = 4;

// The shapes of a part one after the other: what is kept of them, or else what is measured.
class PartInTurn {
 public:
  PartInTurn(const KeptPart& kept, const NanosecondClock& clock)
      : kept_(kept), clock_(clock), start_(clock_()) {}

  // `count` figures of the next shape, which `measure` finds where they are not kept.
  template <typename Measure>
  absl::StatusOr<std::vector<double>> Next(size_t count, const Measure& measure) {
    const std::string what = absl::StrCat(kept_.name, "/", shapes_++);
    const KeptFigures* const before = kept_.times->Find(what);
    if (before != nullptr && before->values.size() == count) {
      kept_ns_ += before->spent_ns;
      return before->values;
    }
    KeptFigures figures;
    const double start = clock_();
    PENSTOCK_ASSIGN_OR_RETURN(figures.values, measure());
    figures.spent_ns = clock_() - start;
    PENSTOCK_RETURN_IF_ERROR(kept_.times->Keep(what, figures));
    return figures.values;
  }

  // Of the time for measuring, what is kept among it.
  double SpentNs() const { return clock_() - start_ + kept_ns_; }

 private:
  const KeptPart& kept_;
  const NanosecondClock& clock_;
  const double start_;
  double kept_ns_ = 0;
  size_t shapes_ = 0;
};

// Of passes: those of each turn, and how long others kept the thread from its core.
constexpr size_t kFiguresOfTurn = 4;
std::vector<double> FiguresOfTurns(const std::vector<PassTimes>& turns, const Interference& interference) {
  std::vector<double> figures;
  for (const PassTimes& times : turns)
    figures.insert(figures.end(), {times.forward_ns, times.backward_ns, times.weight_ns, times.spread});
  figures.push_back(interference.worst());
  return figures;
}
PassTimes TimesOfTurn(const std::vector<double>& figures, size_t turn) {
  const size_t first = turn * kFiguresOfTurn;
  return {figures[first], figures[first + 1], figures[first + 2], figures[first + 3]};
}

// Adds the times of one shape; of every kind of backward pass when it is a layer that is measured.
absl::Status MeasureShape(StageRun& run, const MicroBatch& shape, const FiguresOfStage& figures, bool layer,
                          double budget_ns, PartInTurn& part, MeasuredPasses& passes) {
  std::vector<Turn> turns = {{&run, PassKind()}};
  if (layer) {
    turns.push_back({&run, {.split = true}});
    turns.push_back({&run, {.recompute = {.selective = 1}}});
    turns.push_back({&run, {.recompute = {.full = 1}}});
  }
  PENSTOCK_RETURN_IF_ERROR(run.Prepare(shape));
  const auto measure = [&]() -> absl::StatusOr<std::vector<double>> {
    Interference interference;
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<PassTimes> measured,
                              MeasureQuietly(turns, budget_ns, interference));
    return FiguresOfTurns(measured, interference);
  };
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<double> found,
                            part.Next(kFiguresOfTurn * turns.size() + 1, measure));
  passes.interference.Add(found.back());
  std::vector<PassTimes> times;
  for (size_t turn = 0; turn < turns.size(); ++turn) times.push_back(TimesOfTurn(found, turn));
  passes.spreads.push_back(times[0].spread);
  passes.forward.push_back({figures(run, shape), times[0].forward_ns});
  passes.forward_ns += times[0].forward_ns;
  passes.backward_none_ns += times[0].backward_ns;
  if (!layer) return absl::OkStatus();
  const double input = times[1].backward_ns / (times[1].backward_ns + times[1].weight_ns);
  passes.backward_input.push_back({figures(run, shape), times[0].backward_ns * input});
  passes.backward_weight.push_back({figures(run, shape), times[0].backward_ns * (1 - input)});
  passes.backward_input_ns += times[1].backward_ns;
  passes.backward_weight_ns += times[1].weight_ns;
  passes.backward_selective_ns += times[2].backward_ns;
  passes.backward_full_ns += times[3].backward_ns;
  return absl::OkStatus();
}

// Of what the whole stage takes for both passes of a shape, what the rank takes.
absl::StatusOr<double> PartOfTime(StageRun& whole, StageRun& rank, const MicroBatch& shape,
                                  double budget_ns) {
  PENSTOCK_RETURN_IF_ERROR(whole.Prepare(shape));
  PENSTOCK_RETURN_IF_ERROR(rank.Prepare(shape));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<PassTimes> times,
                            MeasureInTurns({Turn{&whole}, Turn{&rank}}, budget_ns));
  return (times[1].forward_ns + times[1].backward_ns) / (times[0].forward_ns + times[0].backward_ns);
}

}  // namespace

absl::StatusOr<std::vector<PassTimes>> MeasureQuietly(absl::Span<const Turn> turns, double budget_ns,
                                                      Interference& interference) {
  const CoreShare first;
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<PassTimes> times, MeasureInTurns(turns, budget_ns));
  if (!turns.front().run->clocks().own_core) return times;
  double factor = first.Factor();
  if (factor > Interference::kWorthRepeating) {
    const CoreShare second;
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<PassTimes> again, MeasureInTurns(turns, budget_ns));
    if (second.Factor() < factor) times = std::move(again);
    factor = std::min(factor, second.Factor());
  }
  interference.Add(factor);
  return times;
}

absl::StatusOr<MeasuredPasses> MeasureShapes(StageRun& run, const std::vector<MicroBatch>& shapes,
                                             const FiguresOfStage& figures, bool layer, double budget_ns,
                                             const KeptPart& kept) {
  PartInTurn part(kept, run.clocks().budget);
  MeasuredPasses passes;
  for (const MicroBatch& shape : shapes) {
    if (passes.forward.size() >= kFewestShapes && part.SpentNs() > budget_ns) break;
    const absl::Status measured = MeasureShape(run, shape, figures, layer,
                                               budget_ns / static_cast<double>(shapes.size()), part, passes);
    // The next ones are larger still: a small GPU is measured with what it has room for.
    if (absl::IsResourceExhausted(measured) && passes.forward.size() >= kFewestShapes) break;
    PENSTOCK_RETURN_IF_ERROR(measured);
  }
  return passes;
}

absl::StatusOr<TensorTime> MeasureTensorRank(StageRun& whole, StageRun& rank, int degree,
                                             const std::vector<MicroBatch>& shapes,
                                             const FiguresOfStage& figures, const MeasuredTime& form,
                                             double budget_ns, const KeptPart& kept) {
  PartInTurn part(kept, whole.clocks().budget);
  std::vector<CostPoint> points;
  std::vector<double> parts;
  absl::Status too_large;
  for (const MicroBatch& shape : shapes) {
    if (points.size() >= kFewestShapes && part.SpentNs() > budget_ns) break;
    const auto measure = [&]() -> absl::StatusOr<std::vector<double>> {
      PENSTOCK_ASSIGN_OR_RETURN(
          const double of_whole,
          PartOfTime(whole, rank, shape, budget_ns / static_cast<double>(shapes.size())));
      return std::vector<double>{of_whole};
    };
    const absl::StatusOr<std::vector<double>> of_whole = part.Next(1, measure);
    // A small GPU may have room for the whole stage, but not for both.
    if (absl::IsResourceExhausted(of_whole.status())) {
      too_large = of_whole.status();
      continue;
    }
    PENSTOCK_RETURN_IF_ERROR(of_whole.status());
    parts.push_back(of_whole->front());
    PENSTOCK_RETURN_IF_ERROR(whole.Prepare(shape));
    const TokenFigures tokens = figures(whole, shape);
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
