// Places the rows of a micro-batch on the context ranks of a stage group: the span of each.
//
//   Placer placer(costs, room);
//   std::vector<Span> spans;
//   placer.Place(rows, tokens, Placer::Care::kThorough, /*slowness=*/{}, &spans);
//
// Longest first, each row on the smallest aligned span, there where the least loaded ranks are, on which no
// rank gets above a target time; for several targets, of which the best answer is kept (MULTIFIT: Coffman,
// Garey and Johnson 1978, "An application of bin-packing to multiprocessor scheduling"). Then rows leave the
// slowest rank, or are divided further, while that helps. (That whole short rows beside divided long ones
// balance best: Ge et al. 2025, "ByteScale"; Wang et al. 2025, "FlexSP".)
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/model/share.h"
#include "planner/core/placement/load_model.h"
#include "planner/core/placement/span_times.h"

namespace penstock::core {

// Memory of a context rank, counted in tokens of which it has all that a rank has of a token of its own.
struct TokenRoom {
  double most_tokens = std::numeric_limits<double>::infinity();
  // What keys and values take of each token of a row that is divided, wherever the token is.
  double of_key = 0;
};

class Placer {
 public:
  // `room`: kept to nearly wherever some placement does, and always with one row. `costs` must outlive the
  // placer.
  Placer(const CostModel& costs, TokenRoom room);

  // kQuick tries few targets: for searches that place very many micro-batches.
  enum class Care : uint8_t { kQuick, kThorough };

  // One span for each row. With one context rank, the whole group. `slowness`: how many times as long each
  // context rank takes, at least 1; empty: none is slow.
  void Place(absl::Span<const Row> rows, absl::Span<const SampleTokens> tokens, Care care,
             absl::Span<const double> slowness, std::vector<Span>* spans);

  // Rows placed and moved so far, times context ranks that were looked at for each: the work done.
  int64_t looked_at() const { return looked_at_; }

 private:
  struct Item {
    double length = 0;
    double loss = 0;
    double work_ns = 0;
    // Ranks of the largest span: a chunk has at least a token.
    int longest_span = 1;
  };
  // How good a placement is: less is better.
  struct Score {
    double excess_tokens = 0;
    double time_ns = 0;

    bool operator<(const Score& other) const {
      return excess_tokens != other.excess_tokens ? excess_tokens < other.excess_tokens
                                                  : time_ns < other.time_ns;
    }
  };

  Load PartOf(size_t row, const Span& span) const;
  // Adds the row `times` (1 or -1).
  void Add(size_t row, const Span& span, int times);
  // The slowest rank of the span with the row on it; infinite where it would have too many tokens, or be no
  // faster than `limit_ns`.
  double SlowestWith(size_t row, const Span& span, double limit_ns) const;
  // Of so many ranks, where the row is to go: where the slowest rank is fastest, or, where some are slow,
  // where it is with the row on it.
  Span SpanFor(size_t row, int ranks) const;
  // The smallest on which that is not above the target, or the one on which it is least.
  Span SmallestSpan(size_t row, double target_ns) const;
  int LongestSpan(double length) const;
  void RenewTimes();
  void PlaceAll(double target_ns);
  // As evenly in tokens as it can be, whatever it takes: with rows on the largest spans, or the smallest
  // ones.
  void PlaceByTokens(bool divide_all);
  // Of what a rank has: its time, or, while rows are placed by tokens, that.
  double SizeOf(const Load& load, int context) const {
    if (by_tokens_) return load.room;
    if (slowness_.empty()) return model_.TimeNs(load);
    return (model_.FixedNs() + model_.TimeNs(load)) * slowness_[context];
  }
  double MostTokens() const {
    return by_tokens_ ? std::numeric_limits<double>::infinity() : room_.most_tokens;
  }
  void Improve();
  bool ImproveOnce();
  bool TryMove(size_t row, const Span& to);
  // To the fastest span of so many ranks, or, where some are slow, to any of them.
  bool TryMoveToSpanOf(int ranks, size_t row);
  // Whether a rank with this has room for it and takes less than `limit_ns`.
  bool IsBelow(const Load& load, int context, double limit_ns) const {
    return load.room <= MostTokens() && SizeOf(load, context) < limit_ns;
  }
  Score ScoreNow() const;

  const CostModel* costs_;
  LoadModel model_;
  int contexts_;
  TokenRoom room_;
  bool by_tokens_ = false;
  // Of the rows that are being placed.
  absl::Span<const double> slowness_;
  std::vector<Item> items_;
  std::vector<uint32_t> order_;
  double mean_ns_ = 0;
  std::vector<Span> spans_;
  std::vector<Load> loads_;
  SpanTimes times_;
  int64_t looked_at_ = 0;
};

}  // namespace penstock::core
