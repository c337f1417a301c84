// SpanTimes against looking at every rank.
#include "planner/core/placement/span_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

double SlowestOf(const std::vector<double>& times, const Span& span) {
  return *std::max_element(times.begin() + span.first, times.begin() + span.first + span.ranks);
}

void ExpectAsLookedAt(const SpanTimes& spans, const std::vector<double>& times) {
  const auto contexts = static_cast<int>(times.size());
  for (int ranks = 1; ranks <= contexts; ranks *= 2) {
    Span fastest{0, ranks};
    for (int first = 0; first < contexts; first += ranks) {
      const Span span{first, ranks};
      EXPECT_EQ(spans.OfSpan(span), SlowestOf(times, span)) << first << " of " << ranks;
      if (SlowestOf(times, span) < SlowestOf(times, fastest)) fastest = span;
    }
    EXPECT_EQ(spans.FastestSpan(ranks).first, fastest.first) << ranks;
    EXPECT_EQ(spans.FastestSpan(ranks).ranks, ranks);
  }
  EXPECT_EQ(spans.SlowestRank(), std::max_element(times.begin(), times.end()) - times.begin());
}

TEST(SpanTimesTest, KnowsTheSlowestAndTheFastestAfterEveryChange) {
  Random random(7);
  for (const int contexts : {1, 2, 8, 32}) {
    SCOPED_TRACE(absl::StrCat(contexts, " context ranks"));
    SpanTimes spans(contexts);
    std::vector<double> times(contexts, 0);
    ExpectAsLookedAt(spans, times);
    for (int change = 0; change < 100; ++change) {
      int ranks = 1;
      while (ranks < contexts && random.Chance(50)) ranks *= 2;
      const Span span{static_cast<int>(random.Range(0, contexts / ranks - 1)) * ranks, ranks};
      // Few values, so that many ranks are equal.
      for (int context = span.first; context < span.first + ranks; ++context)
        spans.Set(context, times[context] = random.Range(0, 5));
      spans.Renew(span);
      ExpectAsLookedAt(spans, times);
    }
  }
}

TEST(SpanTimesTest, IsAsInTheBeginningAfterClear) {
  SpanTimes spans(4);
  spans.Set(2, 5);
  spans.Renew({2, 1});
  spans.Clear();
  ExpectAsLookedAt(spans, {0, 0, 0, 0});
}

}  // namespace
}  // namespace penstock::core
