#include "planner/core/partition/sample_path.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/core/partition/hilbert_curve.h"

namespace penstock::core {
namespace {

// Near neighbours of each point: candidates are so many before and after it on each curve.
constexpr int kNeighbours = 6;
constexpr int kReach = 4;
constexpr uint32_t kNone = ~uint32_t{0};
// Points that an Or-opt move takes along at most.
constexpr int kLongestSegment = 3;
// Work: points looked at, for each point, and places rewritten in one move.
constexpr int64_t kLooks = 12;
constexpr int kLongestReversal = 1000;
// Below this a gain is rounding.
constexpr double kRoundingGain = 1e-9;

double Distance(const PathPoint& a, const PathPoint& b) { return std::abs(a.x - b.x) + std::abs(a.y - b.y); }

// Scales points into the square of the curve, keeping the proportions of x and y.
class Square {
 public:
  explicit Square(absl::Span<const PathPoint> points) {
    double right = points[0].x;
    double top = points[0].y;
    left_ = right;
    bottom_ = top;
    for (const PathPoint& point : points) {
      left_ = std::min(left_, point.x);
      right = std::max(right, point.x);
      bottom_ = std::min(bottom_, point.y);
      top = std::max(top, point.y);
    }
    const double side = std::max(right - left_, top - bottom_);
    // Half of the square is room for the shift.
    scale_ = side > 0 ? ((1 << (kHilbertBits - 1)) - 1) / side : 0;
  }

  uint32_t Place(const PathPoint& point, uint32_t shift) const {
    return HilbertPlace(static_cast<uint32_t>((point.x - left_) * scale_) + shift,
                        static_cast<uint32_t>((point.y - bottom_) * scale_) + shift);
  }

 private:
  double left_;
  double bottom_;
  double scale_;
};

std::vector<uint32_t> OrderOnCurve(absl::Span<const PathPoint> points, uint32_t shift) {
  const Square square(points);
  std::vector<std::pair<uint32_t, uint32_t>> places(points.size());
  for (uint32_t i = 0; i < points.size(); ++i) places[i] = {square.Place(points[i], shift), i};
  std::sort(places.begin(), places.end());
  std::vector<uint32_t> order(points.size());
  for (size_t i = 0; i < places.size(); ++i) order[i] = places[i].second;
  return order;
}

// Improves a path by moves until none is found or the work is spent.
class PathImprovement {
 public:
  PathImprovement(absl::Span<const PathPoint> points, std::vector<uint32_t> path, StopToken stop)
      : points_(points),
        stop_(stop),
        closing_(static_cast<uint32_t>(points.size())),
        cycle_(std::move(path)) {
    FindNeighbours();
    cycle_.push_back(closing_);
    place_.resize(cycle_.size());
    for (uint32_t i = 0; i < cycle_.size(); ++i) place_[cycle_[i]] = i;
  }

  std::vector<uint32_t> Run();

 private:
  double Far(uint32_t a, uint32_t b) const {
    if (a == closing_ || b == closing_) return 0;
    return Distance(points_[a], points_[b]);
  }
  uint32_t Next(uint32_t a) const {
    const uint32_t place = place_[a] + 1;
    return cycle_[place == cycle_.size() ? 0 : place];
  }
  uint32_t Previous(uint32_t a) const { return cycle_[(place_[a] == 0 ? cycle_.size() : place_[a]) - 1]; }
  absl::Span<const uint32_t> NeighboursOf(uint32_t a) const {
    return absl::MakeConstSpan(neighbours_).subspan(size_t{a} * kNeighbours, kNeighbours);
  }

  void FindNeighbours();
  void AddNeighbours(const std::vector<uint32_t>& order);
  void AddNeighbour(uint32_t a, uint32_t b);

  // Reverses the cycle from place `first` forwards to place `last`, or all the rest, whichever is shorter: as
  // a cycle it is the same.
  void Reverse(uint32_t first, uint32_t last);
  bool TooLong(uint32_t a, uint32_t b) const;
  // Replaces the edges (a, b) and (c, d), which follow each other in this sense, by (a, c) and (b, d).
  void Exchange(uint32_t a, uint32_t b, uint32_t c, uint32_t d);

  // Tries all moves that give `a` a nearer neighbour; makes the first that gains.
  bool Improve(uint32_t a);
  bool TryExchange(uint32_t a);
  // Moves a segment of which `a` is one end. `forwards`: from `a` on.
  bool TryMove(uint32_t a, bool forwards);
  bool TryMoveSegment(uint32_t a, uint32_t end, bool forwards);
  // Moves left..right from between its neighbours to between `c` and the point after it; `left` next to `c`
  // when `straight`, else turned round.
  void MoveSegment(uint32_t left, uint32_t right, uint32_t c, bool straight);
  bool InSegment(uint32_t point, uint32_t left, uint32_t right) const;
  void Wake(uint32_t a);

  absl::Span<const PathPoint> points_;
  StopToken stop_;
  // Is near everything.
  uint32_t closing_;
  std::vector<uint32_t> cycle_;
  std::vector<uint32_t> place_;
  // Nearest first; kNone where there are fewer.
  std::vector<uint32_t> neighbours_;
  // Points to look at, each at most once.
  std::vector<uint32_t> queue_;
  std::vector<char> queued_;
};

void PathImprovement::AddNeighbour(uint32_t a, uint32_t b) {
  uint32_t* list = &neighbours_[size_t{a} * kNeighbours];
  const double far = Far(a, b);
  int position = kNeighbours;
  while (position > 0 && (list[position - 1] == kNone || far < Far(a, list[position - 1]))) --position;
  if (position == kNeighbours || std::find(list, list + kNeighbours, b) != list + kNeighbours) return;
  std::copy_backward(list + position, list + kNeighbours - 1, list + kNeighbours);
  list[position] = b;
}

void PathImprovement::AddNeighbours(const std::vector<uint32_t>& order) {
  const int count = static_cast<int>(order.size());
  for (int i = 0; i < count && !stop_.stopped(); ++i) {
    for (int j = std::max(0, i - kReach); j <= std::min(count - 1, i + kReach); ++j) {
      if (i != j) AddNeighbour(order[i], order[j]);
    }
  }
}

void PathImprovement::FindNeighbours() {
  neighbours_.assign(points_.size() * kNeighbours, kNone);
  AddNeighbours(cycle_);
  // A third of the square: what the first curve separates at its large quadrants, the second does not.
  AddNeighbours(OrderOnCurve(points_, (1 << kHilbertBits) / 3));
}

bool PathImprovement::TooLong(uint32_t a, uint32_t b) const {
  const auto size = static_cast<int>(cycle_.size());
  const int apart = std::abs(static_cast<int>(place_[a]) - static_cast<int>(place_[b]));
  return std::min(apart, size - apart) > kLongestReversal;
}

void PathImprovement::Reverse(uint32_t first, uint32_t last) {
  const auto size = static_cast<uint32_t>(cycle_.size());
  uint32_t count = (last + size - first) % size + 1;
  if (2 * count > size) {
    const uint32_t outside_first = last + 1 == size ? 0 : last + 1;
    last = first == 0 ? size - 1 : first - 1;
    first = outside_first;
    count = size - count;
  }
  for (; count > 1; count -= 2) {
    std::swap(cycle_[first], cycle_[last]);
    place_[cycle_[first]] = first;
    place_[cycle_[last]] = last;
    first = first + 1 == size ? 0 : first + 1;
    last = last == 0 ? size - 1 : last - 1;
  }
}

void PathImprovement::Exchange(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  if (Next(a) == b) {
    Reverse(place_[b], place_[c]);
  } else {
    Reverse(place_[a], place_[d]);
  }
}

void PathImprovement::Wake(uint32_t a) {
  if (a == closing_ || queued_[a] != 0) return;
  queued_[a] = 1;
  queue_.push_back(a);
}

bool PathImprovement::TryExchange(uint32_t a) {
  for (const bool forwards : {true, false}) {
    const uint32_t b = forwards ? Next(a) : Previous(a);
    const double now = Far(a, b);
    for (const uint32_t c : NeighboursOf(a)) {
      if (c == kNone) break;
      const double near = Far(a, c);
      if (near >= now) break;
      const uint32_t d = forwards ? Next(c) : Previous(c);
      if (c == b || d == a) continue;
      if (now + Far(c, d) - near - Far(b, d) <= kRoundingGain || TooLong(a, c)) continue;
      Exchange(a, b, c, d);
      for (const uint32_t point : {a, b, c, d}) Wake(point);
      return true;
    }
  }
  return false;
}

bool PathImprovement::InSegment(uint32_t point, uint32_t left, uint32_t right) const {
  const auto size = static_cast<uint32_t>(cycle_.size());
  return (place_[point] + size - place_[left]) % size <= (place_[right] + size - place_[left]) % size;
}

void PathImprovement::MoveSegment(uint32_t left, uint32_t right, uint32_t c, bool straight) {
  const uint32_t before = Previous(left);
  const uint32_t after = Next(right);
  const uint32_t d = Next(c);
  // before [left..right] after..c d  ->  before c..after [right..left] d  ->  before after..c [right..left] d
  Exchange(before, left, c, d);
  Exchange(before, c, after, right);
  if (straight) Exchange(c, right, left, d);
  for (const uint32_t point : {before, left, right, after, c, d}) Wake(point);
}

bool PathImprovement::TryMoveSegment(uint32_t a, uint32_t end, bool forwards) {
  const uint32_t left = forwards ? a : end;
  const uint32_t right = forwards ? end : a;
  const uint32_t before = Previous(left);
  const uint32_t after = Next(right);
  if (before == after) return false;
  const double gain = Far(before, left) + Far(right, after) - Far(before, after);
  for (const uint32_t c : NeighboursOf(a)) {
    if (c == kNone) break;
    const double near = Far(a, c);
    if (near >= gain) break;
    if (InSegment(c, left, right)) continue;
    for (const bool to_right : {true, false}) {
      const uint32_t d = to_right ? Next(c) : Previous(c);
      if (InSegment(d, left, right)) continue;
      if (gain - near - Far(end, d) + Far(c, d) <= kRoundingGain || TooLong(a, c)) continue;
      // The edge's first point, and whether `left` comes next to it.
      if (to_right) {
        MoveSegment(left, right, c, /*straight=*/a == left);
      } else {
        MoveSegment(left, right, d, /*straight=*/a == right);
      }
      return true;
    }
  }
  return false;
}

bool PathImprovement::TryMove(uint32_t a, bool forwards) {
  uint32_t end = a;
  for (int length = 1; length <= kLongestSegment; ++length) {
    if (TryMoveSegment(a, end, forwards)) return true;
    end = forwards ? Next(end) : Previous(end);
    if (end == closing_ || end == a) return false;
  }
  return false;
}

bool PathImprovement::Improve(uint32_t a) {
  return TryExchange(a) || TryMove(a, /*forwards=*/true) || TryMove(a, /*forwards=*/false);
}

std::vector<uint32_t> PathImprovement::Run() {
  queue_ = cycle_;
  queue_.pop_back();
  queued_.assign(points_.size(), 1);
  int64_t looks = kLooks * static_cast<int64_t>(points_.size());
  for (size_t head = 0; head < queue_.size() && looks > 0 && !stop_.stopped(); ++head) {
    const uint32_t a = queue_[head];
    queued_[a] = 0;
    while (--looks > 0 && !stop_.stopped() && Improve(a)) {
    }
  }
  std::rotate(cycle_.begin(), cycle_.begin() + place_[closing_], cycle_.end());
  cycle_.erase(cycle_.begin());
  return std::move(cycle_);
}

}  // namespace

double PathLength(absl::Span<const PathPoint> points, absl::Span<const uint32_t> order) {
  double length = 0;
  for (size_t i = 1; i < order.size(); ++i) length += Distance(points[order[i - 1]], points[order[i]]);
  return length;
}

std::vector<uint32_t> HilbertOrder(absl::Span<const PathPoint> points) {
  if (points.empty()) return {};
  return OrderOnCurve(points, 0);
}

std::vector<uint32_t> ShortPath(absl::Span<const PathPoint> points, StopToken stop) {
  std::vector<uint32_t> sorted(points.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) {
    if (points[a].x != points[b].x) return points[a].x < points[b].x;
    if (points[a].y != points[b].y) return points[a].y < points[b].y;
    return a < b;
  });
  // Places, and where each begins among the sorted points.
  std::vector<PathPoint> places;
  std::vector<size_t> begin;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const PathPoint& point = points[sorted[i]];
    if (places.empty() || Distance(places.back(), point) > 0) {
      places.push_back(point);
      begin.push_back(i);
    }
  }
  begin.push_back(sorted.size());
  if (places.size() < 3) return sorted;
  std::vector<uint32_t> path = PathImprovement(places, OrderOnCurve(places, 0), stop).Run();
  const auto origin = [&](uint32_t place) { return places[place].x + places[place].y; };
  if (origin(path.back()) < origin(path.front())) std::reverse(path.begin(), path.end());
  std::vector<uint32_t> order;
  order.reserve(points.size());
  for (const uint32_t place : path) {
    order.insert(order.end(), sorted.begin() + static_cast<std::ptrdiff_t>(begin[place]),
                 sorted.begin() + static_cast<std::ptrdiff_t>(begin[place + 1]));
  }
  return order;
}

}  // namespace penstock::core
