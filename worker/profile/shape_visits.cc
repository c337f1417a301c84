#include "worker/profile/shape_visits.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

constexpr size_t kFewestShapes = 4;
// Of the time, what the first visits may take: they decide how many shapes there are.
constexpr double kFirstVisitsShare = 0.6;
constexpr size_t kMostVisits = 15;
// What a visit aims at, as a part of what all shapes have for one.
constexpr double kVisitsAimedAt = 4;
// Of the time of a pass: a visit's figures as they are kept.
constexpr size_t kFiguresOfKind = 4;

std::vector<Turn> TurnsOf(StageRun& run, absl::Span<const PassKind> kinds) {
  std::vector<Turn> turns;
  turns.reserve(kinds.size());
  for (const PassKind& kind : kinds) turns.push_back({&run, kind});
  return turns;
}

double BothPasses(const PassTimes& times) { return times.forward_ns + times.backward_ns; }

// Of one kind of passes over one shape.
PassTimes MedianOf(const std::vector<PassTimes>& visits) {
  const auto of = [&](double PassTimes::*member) {
    std::vector<double> values;
    values.reserve(visits.size());
    for (const PassTimes& visit : visits) values.push_back(visit.*member);
    return Median(std::move(values));
  };
  return {of(&PassTimes::forward_ns), of(&PassTimes::backward_ns), of(&PassTimes::weight_ns),
          of(&PassTimes::spread)};
}

class Visits {
 public:
  Visits(StageRun& run, absl::Span<const MicroBatch> shapes, absl::Span<const PassKind> kinds,
         double budget_ns, const KeptPart& kept)
      : run_(run),
        shapes_(shapes),
        kinds_(kinds),
        budget_ns_(budget_ns),
        visit_ns_(budget_ns / kVisitsAimedAt / static_cast<double>(shapes.size())),
        kept_(kept),
        start_(run.clocks().budget()) {}

  absl::Status First() {
    // Times of what is kept are not those of measuring it anew: how many shapes there were is kept, too.
    const std::string end = absl::StrCat(kept_.name, "/shapes");
    const KeptFigures* const count = kept_.times->Find(end);
    for (size_t shape = 0; shape < shapes_.size(); ++shape) {
      if (count != nullptr ? shape == static_cast<size_t>(count->values.front()) : IsTimeForFirstOver(shape))
        break;
      const absl::Status visited = VisitFirst(shape);
      // The next ones are larger still: a small GPU is measured with what it has room for.
      if (absl::IsResourceExhausted(visited) && shape >= kFewestShapes) break;
      PENSTOCK_RETURN_IF_ERROR(visited);
    }
    if (count != nullptr) return absl::OkStatus();
    return kept_.times->Keep(end, {.values = {static_cast<double>(first_.size())}});
  }

  // Rounds over the shapes that were visited, for as long as there is time for one of them.
  absl::Status More() {
    const std::string end = absl::StrCat(kept_.name, "/visits");
    const bool has_ended = kept_.times->Find(end) != nullptr;
    bool any = true;
    for (size_t visit = 1; visit < kMostVisits && any; ++visit) {
      any = false;
      for (size_t shape = 0; shape < first_.size(); ++shape) {
        PENSTOCK_ASSIGN_OR_RETURN(const bool visited, VisitAgain(shape, visit, has_ended));
        any = any || visited;
      }
    }
    return has_ended ? absl::OkStatus() : kept_.times->Keep(end, {.values = {1}});
  }

  VisitedShapes Take() && {
    VisitedShapes visited;
    visited.interference = interference_;
    for (size_t shape = 0; shape < first_.size(); ++shape) {
      ShapeTimes times = std::move(first_[shape]);
      const PassTimes first = times.kinds.front();
      const PassTimes median = MedianOf(visits_[shape]);
      // The other kinds took turns with the first: what slowed one slowed all.
      const double scale = BothPasses(median) / BothPasses(first);
      for (PassTimes& kind : times.kinds) {
        kind.forward_ns *= scale;
        kind.backward_ns *= scale;
        kind.weight_ns *= scale;
      }
      times.kinds.front() = median;
      visited.shapes.push_back(std::move(times));
    }
    return visited;
  }

 private:
  // Of the time for measuring, what is kept among it.
  double SpentNs() const { return run_.clocks().budget() - start_ + kept_ns_; }

  bool IsTimeForFirstOver(size_t shape) const {
    return shape >= kFewestShapes && SpentNs() > kFirstVisitsShare * budget_ns_;
  }

  absl::Status VisitFirst(size_t shape) {
    // Says how many positions the loss counts, too.
    PENSTOCK_RETURN_IF_ERROR(run_.Prepare(shapes_[shape]));
    const std::string what = absl::StrCat(kept_.name, "/", shape);
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<PassTimes> times, Visit(what, kinds_));
    first_.push_back({run_.loss_tokens(), times});
    visits_.push_back({times.front()});
    return absl::OkStatus();
  }

  // False: there is no time for it.
  absl::StatusOr<bool> VisitAgain(size_t shape, size_t visit, bool kept_only) {
    const std::string what = absl::StrCat(kept_.name, "/", shape, "/", visit);
    const double expected = std::max(BothPasses(first_[shape].kinds.front()), visit_ns_ / 2);
    if (kept_.times->Find(what) == nullptr) {
      if (kept_only || SpentNs() + expected > budget_ns_) return false;
      PENSTOCK_RETURN_IF_ERROR(run_.Prepare(shapes_[shape]));
    }
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<PassTimes> times, Visit(what, kinds_.first(1)));
    visits_[shape].push_back(times.front());
    return true;
  }

  // What is kept of it, or else what is measured of the shape that is prepared.
  absl::StatusOr<std::vector<PassTimes>> Visit(const std::string& what, absl::Span<const PassKind> kinds) {
    KeptFigures figures;
    if (const KeptFigures* const before = kept_.times->Find(what);
        before != nullptr && before->values.size() == kFiguresOfKind * kinds.size() + 1) {
      figures = *before;
      kept_ns_ += figures.spent_ns;
    } else {
      PENSTOCK_ASSIGN_OR_RETURN(figures, Measure(kinds));
      PENSTOCK_RETURN_IF_ERROR(kept_.times->Keep(what, figures));
    }
    interference_.Add(figures.values.back());
    std::vector<PassTimes> times;
    for (size_t i = 0; i + 1 < figures.values.size(); i += kFiguresOfKind) {
      times.push_back(
          {figures.values[i], figures.values[i + 1], figures.values[i + 2], figures.values[i + 3]});
    }
    return times;
  }

  // Times by kind, and last how long others kept the thread from its core.
  absl::StatusOr<KeptFigures> Measure(absl::Span<const PassKind> kinds) {
    const double start = run_.clocks().budget();
    Interference interference;
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<PassTimes> measured,
                              MeasureQuietly(TurnsOf(run_, kinds), visit_ns_, interference));
    KeptFigures figures;
    for (const PassTimes& times : measured) {
      figures.values.insert(figures.values.end(),
                            {times.forward_ns, times.backward_ns, times.weight_ns, times.spread});
    }
    figures.values.push_back(interference.worst());
    figures.spent_ns = run_.clocks().budget() - start;
    return figures;
  }

  StageRun& run_;
  const absl::Span<const MicroBatch> shapes_;
  const absl::Span<const PassKind> kinds_;
  const double budget_ns_;
  const double visit_ns_;
  const KeptPart& kept_;
  const double start_;
  double kept_ns_ = 0;
  // By shape.
  std::vector<ShapeTimes> first_;
  std::vector<std::vector<PassTimes>> visits_;
  Interference interference_;
};

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

std::vector<PassKind> KindsOfLayer() {
  std::vector<PassKind> kinds(4);
  kinds[kSplit].split = true;
  kinds[kSelective].recompute.selective = 1;
  kinds[kFull].recompute.full = 1;
  return kinds;
}

absl::StatusOr<VisitedShapes> VisitShapes(StageRun& run, absl::Span<const MicroBatch> shapes,
                                          absl::Span<const PassKind> kinds, double budget_ns,
                                          const KeptPart& kept) {
  Visits visits(run, shapes, kinds, budget_ns, kept);
  PENSTOCK_RETURN_IF_ERROR(visits.First());
  PENSTOCK_RETURN_IF_ERROR(visits.More());
  return std::move(visits).Take();
}

}  // namespace penstock::worker
