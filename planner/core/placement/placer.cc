#include "planner/core/placement/placer.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace penstock::core {
namespace {

// Targets that are tried first, as multiples of the mean load; then so many between the best two.
constexpr double kQuickTargets[] = {1.05, 1.2};
constexpr double kTargets[] = {1.02, 1.06, 1.12, 1.25, 1.6};
constexpr int kBisections = 3;
// How far above its target the best answer is where another one is tried, and how far that is below it.
constexpr double kMissed = 1.15;
constexpr double kBelowBest = 0.9;
// Rows that leave the slowest rank, at most, for each row that there is.
constexpr int kMovesOfARow = 2;

bool Contains(const Span& span, int context) {
  return context >= span.first && context < span.first + span.ranks;
}

}  // namespace

Placer::Placer(const CostModel& costs, TokenRoom room)
    : costs_(&costs), model_(costs), contexts_(costs.group().context), room_(room), times_(contexts_) {}

Load Placer::PartOf(size_t row, const Span& span) const {
  const Item& item = items_[row];
  const Link link = span.ranks > 1 ? costs_->nodes().OfSpan(span.first, span.ranks) : Link::kInsideNode;
  Load part = model_.Part(item.length, item.loss, span.ranks, link);
  part.room = part.tokens + (span.ranks > 1 ? room_.of_key * item.length : 0);
  return part;
}

void Placer::Add(size_t row, const Span& span, int times) {
  const Load part = PartOf(row, span);
  for (int context = span.first; context < span.first + span.ranks; ++context) {
    AddTo(part, times, &loads_[context]);
    times_.Set(context, SizeOf(loads_[context], context));
  }
  times_.Renew(span);
}

int Placer::LongestSpan(double length) const {
  int ranks = 1;
  while (2 * ranks <= contexts_ && length >= 4 * ranks) ranks *= 2;
  return ranks;
}

double Placer::SlowestWith(size_t row, const Span& span, double limit_ns) const {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const Load part = PartOf(row, span);
  double slowest = 0;
  for (int context = span.first; context < span.first + span.ranks; ++context) {
    Load load = loads_[context];
    AddTo(part, 1, &load);
    if (load.room > MostTokens()) return kInfinite;
    slowest = std::max(slowest, SizeOf(load, context));
    if (slowest >= limit_ns) return kInfinite;
  }
  return slowest;
}

Span Placer::SpanFor(size_t row, int ranks) const {
  Span best = times_.FastestSpan(ranks);
  if (slowness_.empty()) return best;
  double least = std::numeric_limits<double>::infinity();
  for (int first = 0; first < contexts_; first += ranks) {
    const double slowest = SlowestWith(row, {first, ranks}, least);
    if (slowest >= least) continue;
    least = slowest;
    best = {first, ranks};
  }
  return best;
}

Span Placer::SmallestSpan(size_t row, double target_ns) const {
  const int longest = items_[row].longest_span;
  Span best = SpanFor(row, 1);
  double least = SlowestWith(row, best, std::numeric_limits<double>::infinity());
  for (int ranks = 2; ranks <= longest && least > target_ns; ranks *= 2) {
    const Span span = SpanFor(row, ranks);
    const double slowest = SlowestWith(row, span, least);
    if (slowest >= least) continue;
    least = slowest;
    best = span;
  }
  return best;
}

void Placer::RenewTimes() {
  for (int context = 0; context < contexts_; ++context) times_.Set(context, SizeOf(loads_[context], context));
  times_.Renew({0, contexts_});
}

void Placer::PlaceAll(double target_ns) {
  loads_.assign(contexts_, Load());
  times_.Clear();
  if (!slowness_.empty()) RenewTimes();
  for (const uint32_t row : order_) {
    spans_[row] = SmallestSpan(row, target_ns);
    Add(row, spans_[row], 1);
  }
  looked_at_ += static_cast<int64_t>(order_.size()) * contexts_;
}

void Placer::PlaceByTokens(bool divide_all) {
  by_tokens_ = true;
  double tokens = 0;
  for (const Item& item : items_) tokens += item.length;
  PlaceAll(divide_all ? 0 : tokens / contexts_);
  Improve();
  by_tokens_ = false;
  RenewTimes();
  if (ScoreNow().excess_tokens <= 0) Improve();
}

Placer::Score Placer::ScoreNow() const {
  Score score;
  for (const Load& load : loads_)
    score.excess_tokens = std::max(score.excess_tokens, load.room - room_.most_tokens);
  score.time_ns = times_.OfSpan({0, contexts_});
  return score;
}

// Accepts the move if the slowest of the ranks that it touches gets faster. Most moves are refused at the
// first rank that they bring more to, so those come first.
bool Placer::TryMove(size_t row, const Span& to) {
  const Span from = spans_[row];
  const double limit = std::max(times_.OfSpan(from), times_.OfSpan(to)) * (1 - 1e-9);
  const Load leaving = PartOf(row, from);
  const Load coming = PartOf(row, to);
  for (int context = to.first; context < to.first + to.ranks; ++context) {
    Load load = loads_[context];
    if (Contains(from, context)) AddTo(leaving, -1, &load);
    AddTo(coming, 1, &load);
    if (!IsBelow(load, context, limit)) return false;
  }
  for (int context = from.first; context < from.first + from.ranks; ++context) {
    if (Contains(to, context)) continue;
    Load load = loads_[context];
    AddTo(leaving, -1, &load);
    if (SizeOf(load, context) >= limit) return false;
  }
  Add(row, from, -1);
  Add(row, to, 1);
  spans_[row] = to;
  return true;
}

bool Placer::TryMoveToSpanOf(int ranks, size_t row) {
  if (slowness_.empty()) {
    const Span& from = spans_[row];
    const Span to = times_.FastestSpan(ranks);
    return (to.first != from.first || to.ranks != from.ranks) && TryMove(row, to);
  }
  for (int first = 0; first < contexts_; first += ranks) {
    if (TryMove(row, {first, ranks})) return true;
  }
  return false;
}

bool Placer::ImproveOnce() {
  const int slowest = times_.SlowestRank();
  for (const uint32_t row : order_) {
    const Span span = spans_[row];
    if (!Contains(span, slowest)) continue;
    if (TryMoveToSpanOf(span.ranks, row)) return true;
    if (span.ranks < items_[row].longest_span) {
      const int ranks = 2 * span.ranks;
      if (TryMove(row, {span.first / ranks * ranks, ranks})) return true;
      if (TryMoveToSpanOf(ranks, row)) return true;
    }
    if (span.ranks > 1 && TryMoveToSpanOf(span.ranks / 2, row)) return true;
  }
  return false;
}

void Placer::Improve() {
  for (size_t moves = kMovesOfARow * order_.size(); moves > 0 && ImproveOnce(); --moves)
    looked_at_ += contexts_;
}

void Placer::Place(absl::Span<const Row> rows, absl::Span<const SampleTokens> tokens, Care care,
                   absl::Span<const double> slowness, std::vector<Span>* spans) {
  slowness_ = slowness;
  double speeds = slowness.empty() ? contexts_ : 0;
  for (const double slow : slowness) speeds += 1 / slow;
  items_.clear();
  mean_ns_ = slowness.empty() ? 0 : model_.FixedNs() * contexts_ / speeds;
  for (const Row& row : rows) {
    Item item;
    item.length = static_cast<double>(row.length);
    for (const uint32_t sample : row.samples) item.loss += tokens[sample].loss;
    item.work_ns = model_.WorkNs(item.length, item.loss);
    item.longest_span = LongestSpan(item.length);
    mean_ns_ += item.work_ns / speeds;
    items_.push_back(item);
  }
  order_.resize(rows.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](uint32_t a, uint32_t b) { return items_[a].work_ns > items_[b].work_ns; });
  spans_.resize(rows.size());
  Score best{std::numeric_limits<double>::infinity(), 0};
  double best_target = 0;
  const auto keep_if_best = [&] {
    const Score score = ScoreNow();
    if (!(score < best)) return false;
    best = score;
    *spans = spans_;
    return true;
  };
  const auto attempt = [&](double target_ns) {
    PlaceAll(target_ns);
    Improve();
    if (keep_if_best()) best_target = target_ns;
  };
  const absl::Span<const double> targets =
      care == Care::kQuick ? absl::MakeConstSpan(kQuickTargets) : absl::MakeConstSpan(kTargets);
  for (const double target : targets) {
    attempt(target * mean_ns_);
    // Where a target is met, a higher one is hardly ever answered by less. Of the few quick targets the
    // higher one may be.
    if (care == Care::kThorough && best.excess_tokens <= 0 && best.time_ns <= target * mean_ns_) break;
  }
  // Where exchanges are slow no target was near what can be had: the best of what was made is a better one.
  if (best.time_ns > kMissed * best_target) attempt(kBelowBest * best.time_ns);
  // A lower target than the best one's answer, where it can be met.
  double step = (best.time_ns - best_target) / 2;
  const int bisections = care == Care::kQuick ? 0 : kBisections;
  for (int i = 0; i < bisections && best.excess_tokens <= 0; ++i, step /= 2) {
    attempt(best.time_ns - step);
  }
  if (best.excess_tokens <= 0) return;
  for (const bool divide_all : {true, false}) {
    PlaceByTokens(divide_all);
    keep_if_best();
  }
}

}  // namespace penstock::core
