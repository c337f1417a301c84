#include "planner/core/placement/placer.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace penstock::core {
namespace {

constexpr double kSlacks[] = {1.0, 0.7, 0.45, 0.25, 1.5};
// Rows that leave the slowest rank, at most, for each row that there is.
constexpr int kMovesOfARow = 2;

}  // namespace

Placer::Placer(const CostModel& costs, double most_tokens)
    : costs_(&costs), model_(costs), contexts_(costs.group().context), most_tokens_(most_tokens) {}

RowLoad Placer::PartOf(size_t row, const Span& span) const {
  const Item& item = items_[row];
  const Link link = span.ranks > 1 ? costs_->nodes().OfSpan(span.first, span.ranks) : Link::kInsideNode;
  return model_.Part(item.length, item.loss, span.ranks, link);
}

void Placer::Add(size_t row, const Span& span, double times) {
  const RowLoad part = PartOf(row, span);
  for (int context = span.first; context < span.first + span.ranks; ++context) {
    AddTo(part, times, &loads_[context]);
    times_[context] = model_.TimeNs(loads_[context]);
  }
}

int Placer::LongestSpan(const Item& item) const {
  int ranks = 1;
  // A chunk has at least a token.
  while (2 * ranks <= contexts_ && item.length >= 4 * ranks) ranks *= 2;
  return ranks;
}

int Placer::SmallestSpan(const Item& item, double most_ns) const {
  const int longest = LongestSpan(item);
  int ranks = 1;
  while (ranks < longest && (item.work_ns > most_ns * ranks || item.length > most_tokens_ * ranks))
    ranks *= 2;
  return ranks;
}

Span Placer::BestPlace(int ranks) const {
  Span best{0, ranks};
  double least = std::numeric_limits<double>::infinity();
  for (int first = 0; first < contexts_; first += ranks) {
    const double slowest = *std::max_element(times_.begin() + first, times_.begin() + first + ranks);
    if (slowest >= least) continue;
    least = slowest;
    best.first = first;
  }
  return best;
}

void Placer::PlaceAll(double slack) {
  loads_.assign(contexts_, Load());
  times_.assign(contexts_, 0);
  for (const uint32_t row : order_) {
    spans_[row] = BestPlace(SmallestSpan(items_[row], slack * mean_ns_));
    Add(row, spans_[row], 1);
  }
  placed_ += static_cast<int64_t>(order_.size());
}

void Placer::PlaceEvenly() {
  loads_.assign(contexts_, Load());
  times_.assign(contexts_, 0);
  for (const uint32_t row : order_) {
    spans_[row] = BestPlace(LongestSpan(items_[row]));
    Add(row, spans_[row], 1);
  }
}

Placer::Score Placer::ScoreNow() const {
  Score score;
  for (int context = 0; context < contexts_; ++context) {
    score.excess_tokens = std::max(score.excess_tokens, loads_[context].tokens - most_tokens_);
    score.time_ns = std::max(score.time_ns, times_[context]);
  }
  return score;
}

int Placer::Slowest() const {
  return static_cast<int>(std::max_element(times_.begin(), times_.end()) - times_.begin());
}

// Accepts the move if the slowest of the ranks that it touches gets faster.
bool Placer::TryMove(size_t row, const Span& to) {
  const Span from = spans_[row];
  const auto slowest = [&] {
    double time = 0;
    for (const Span& span : {from, to}) {
      for (int context = span.first; context < span.first + span.ranks; ++context) {
        time = std::max(time, times_[context]);
      }
    }
    return time;
  };
  const double before = slowest();
  Add(row, from, -1);
  Add(row, to, 1);
  double tokens = 0;
  for (int context = to.first; context < to.first + to.ranks; ++context)
    tokens = std::max(tokens, loads_[context].tokens);
  if (slowest() < before * (1 - 1e-9) && tokens <= most_tokens_) {
    spans_[row] = to;
    return true;
  }
  Add(row, to, -1);
  Add(row, from, 1);
  return false;
}

bool Placer::ImproveOnce() {
  const int slowest = Slowest();
  for (const uint32_t row : order_) {
    const Span span = spans_[row];
    if (slowest < span.first || slowest >= span.first + span.ranks) continue;
    const Span elsewhere = BestPlace(span.ranks);
    if (elsewhere.first != span.first && TryMove(row, elsewhere)) return true;
    if (span.ranks < LongestSpan(items_[row])) {
      const int ranks = 2 * span.ranks;
      if (TryMove(row, {span.first / ranks * ranks, ranks})) return true;
      const Span wider = BestPlace(ranks);
      if (TryMove(row, wider)) return true;
    }
    if (span.ranks > 1 && TryMove(row, BestPlace(span.ranks / 2))) return true;
  }
  return false;
}

void Placer::Improve() {
  for (size_t moves = kMovesOfARow * order_.size(); moves > 0 && ImproveOnce(); --moves) ++placed_;
}

void Placer::Place(absl::Span<const Row> rows, absl::Span<const SampleTokens> tokens,
                   std::vector<Span>* spans) {
  items_.clear();
  mean_ns_ = 0;
  for (const Row& row : rows) {
    Item item;
    item.length = static_cast<double>(row.length);
    for (const uint32_t sample : row.samples) item.loss += tokens[sample].loss;
    item.work_ns = model_.WorkNs(item.length, item.loss);
    mean_ns_ += item.work_ns / contexts_;
    items_.push_back(item);
  }
  order_.resize(rows.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](uint32_t a, uint32_t b) { return items_[a].work_ns > items_[b].work_ns; });
  spans_.resize(rows.size());
  Score best{std::numeric_limits<double>::infinity(), 0};
  const auto keep = [&] {
    const Score score = ScoreNow();
    if (!(score < best)) return;
    best = score;
    *spans = spans_;
  };
  for (const double slack : kSlacks) {
    PlaceAll(slack);
    Improve();
    keep();
  }
  if (best.excess_tokens <= 0) return;
  PlaceEvenly();
  keep();
}

}  // namespace penstock::core
