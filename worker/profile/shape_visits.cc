#include "worker/profile/shape_visits.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "worker/profile/next_visit.h"
#include "worker/profile/visits_of_shape.h"

namespace penstock::worker {
namespace {

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

// MeasureInTurns, once more where others kept the thread from its core; the quieter one counts. Possible
// errors: those of the passes.
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

class Visits {
 public:
  Visits(StageRun& run, absl::Span<const MicroBatch> shapes, absl::Span<const PassKind> kinds,
         FiguresOfStage figures, double budget_ns, const KeptPart& kept)
      : run_(run),
        shapes_(shapes),
        kinds_(kinds),
        figures_(std::move(figures)),
        budget_ns_(budget_ns),
        visit_ns_(budget_ns / kVisitsAimedAt / static_cast<double>(shapes.size())),
        part_(kept, run.clocks().budget) {}

  absl::Status First() {
    // Times of what is kept are not those of measuring it anew: how many shapes there were is kept, too.
    const KeptFigures* const count = part_.Find("shapes");
    for (size_t shape = 0; shape < shapes_.size(); ++shape) {
      if (count != nullptr ? shape == static_cast<size_t>(count->values.front()) : IsTimeForFirstOver(shape))
        break;
      const absl::Status visited = VisitFirst(shape);
      // The next ones are larger still: a small GPU is measured with what it has room for.
      if (absl::IsResourceExhausted(visited) && shape >= kFewestShapes) break;
      PENSTOCK_RETURN_IF_ERROR(visited);
    }
    if (count != nullptr) return absl::OkStatus();
    return part_.Keep("shapes", {.values = {static_cast<double>(visits_.size())}});
  }

  // Of shapes that were visited, for as long as there is time for one of them.
  absl::Status More() {
    const bool has_ended = part_.Find("visits") != nullptr;
    for (size_t shape = 0; shape < visits_.size(); ++shape) {
      while (IsKept(shape)) PENSTOCK_RETURN_IF_ERROR(VisitAgain(shape));
    }
    if (has_ended) return absl::OkStatus();
    while (const std::optional<size_t> next = NextVisit(VisitedSoFar(), figures_ != nullptr))
      PENSTOCK_RETURN_IF_ERROR(VisitAgain(*next));
    return part_.Keep("visits", {.values = {1}});
  }

  VisitedShapes Take() const {
    VisitedShapes visited;
    visited.interference = interference_;
    for (size_t shape = 0; shape < visits_.size(); ++shape)
      visited.shapes.push_back({loss_tokens_[shape], visits_[shape].Medians()});
    return visited;
  }

 private:
  bool IsTimeForFirstOver(size_t shape) const {
    return shape >= kFewestShapes && part_.SpentNs() > kFirstVisitsShare * budget_ns_;
  }

  absl::Status VisitFirst(size_t shape) {
    // Says how many positions the loss counts, too.
    PENSTOCK_RETURN_IF_ERROR(run_.Prepare(shapes_[shape]));
    VisitsOfShape visits(kinds_.size());
    PENSTOCK_RETURN_IF_ERROR(Visit(absl::StrCat(shape), visits));
    loss_tokens_.push_back(run_.loss_tokens());
    visits_.push_back(std::move(visits));
    return absl::OkStatus();
  }

  std::string NameOfNext(size_t shape) const { return absl::StrCat(shape, "/", visits_[shape].count()); }
  bool IsKept(size_t shape) const { return part_.Find(NameOfNext(shape)) != nullptr; }

  bool IsTimeFor(size_t shape) const {
    const double expected = std::max(visits_[shape].NextNs(), visit_ns_ / 2);
    return visits_[shape].count() < kMostVisits && part_.SpentNs() + expected <= budget_ns_;
  }

  std::vector<VisitedShape> VisitedSoFar() const {
    std::vector<VisitedShape> visited;
    for (size_t shape = 0; shape < visits_.size(); ++shape) {
      const TokenFigures tokens =
          figures_ != nullptr ? figures_(shapes_[shape], loss_tokens_[shape]) : TokenFigures();
      visited.push_back({.point = {tokens, BothPasses(visits_[shape].MedianOfFirst())},
                         .visits = visits_[shape].count(),
                         .open = IsTimeFor(shape)});
    }
    return visited;
  }

  absl::Status VisitAgain(size_t shape) {
    if (!IsKept(shape)) PENSTOCK_RETURN_IF_ERROR(run_.Prepare(shapes_[shape]));
    return Visit(NameOfNext(shape), visits_[shape]);
  }

  // Adds what is kept of it, or else what is measured of the shape that is prepared.
  absl::Status Visit(const std::string& what, VisitsOfShape& visits) {
    std::vector<PassKind> kinds;
    for (const size_t kind : visits.NextKinds()) kinds.push_back(kinds_[kind]);
    PENSTOCK_ASSIGN_OR_RETURN(
        const std::vector<double> figures,
        part_.Get(what, kFiguresOfKind * kinds.size() + 1, [&] { return Measure(kinds); }));
    interference_.Add(figures.back());
    std::vector<PassTimes> times;
    for (size_t i = 0; i + 1 < figures.size(); i += kFiguresOfKind)
      times.push_back({figures[i], figures[i + 1], figures[i + 2], figures[i + 3]});
    visits.Add(times);
    return absl::OkStatus();
  }

  // Times by kind, and last how long others kept the thread from its core.
  absl::StatusOr<std::vector<double>> Measure(absl::Span<const PassKind> kinds) const {
    Interference interference;
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<PassTimes> measured,
                              MeasureQuietly(TurnsOf(run_, kinds), visit_ns_, interference));
    std::vector<double> figures;
    for (const PassTimes& times : measured)
      figures.insert(figures.end(), {times.forward_ns, times.backward_ns, times.weight_ns, times.spread});
    figures.push_back(interference.worst());
    return figures;
  }

  StageRun& run_;
  const absl::Span<const MicroBatch> shapes_;
  const absl::Span<const PassKind> kinds_;
  const FiguresOfStage figures_;
  const double budget_ns_;
  const double visit_ns_;
  PartFigures part_;
  // By shape.
  std::vector<int64_t> loss_tokens_;
  std::vector<VisitsOfShape> visits_;
  Interference interference_;
};

}  // namespace

std::vector<PassKind> KindsOfLayer() {
  std::vector<PassKind> kinds(4);
  kinds[kSplit].split = true;
  kinds[kSelective].recompute.selective = 1;
  kinds[kFull].recompute.full = 1;
  return kinds;
}

absl::StatusOr<VisitedShapes> VisitShapes(StageRun& run, absl::Span<const MicroBatch> shapes,
                                          absl::Span<const PassKind> kinds, FiguresOfStage figures,
                                          double budget_ns, const KeptPart& kept) {
  Visits visits(run, shapes, kinds, std::move(figures), budget_ns, kept);
  PENSTOCK_RETURN_IF_ERROR(visits.First());
  PENSTOCK_RETURN_IF_ERROR(visits.More());
  return visits.Take();
}

}  // namespace penstock::worker
