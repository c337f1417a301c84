#include "worker/program/share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

MicroBatch Packed(const std::vector<int32_t>& lengths, std::vector<Span> spans) {
  MicroBatch shape;
  shape.layout = Layout::kPacked;
  shape.target_cu_seqlens = {0};
  for (const int32_t length : lengths) {
    shape.sample_ids.push_back(shape.sample_ids.size());
    shape.target_cu_seqlens.push_back(shape.target_cu_seqlens.back() + length);
  }
  shape.spans = std::move(spans);
  return shape;
}

TEST(Share, OfADividedRowIsAChunkFromEachEnd) {
  const MicroBatch shape = Packed({10}, {{0, 2}});
  EXPECT_THAT(ChunksOf(shape, Side::kTarget, 0), ElementsAre(RowChunk{0, 0, 2}, RowChunk{0, 7, 3}));
  EXPECT_THAT(ChunksOf(shape, Side::kTarget, 1), ElementsAre(RowChunk{0, 2, 3}, RowChunk{0, 5, 2}));
  EXPECT_EQ(TokensOn(shape, Side::kTarget, 0), 5);
}

TEST(Share, OfRowsIsEndToEndInTheirOrder) {
  const MicroBatch shape = Packed({3, 8, 5, 4}, {{2, 1}, {2, 2}, {0, 1}, {2, 1}});
  EXPECT_THAT(ChunksOf(shape, Side::kTarget, 2),
              ElementsAre(RowChunk{0, 0, 3}, RowChunk{1, 0, 2}, RowChunk{1, 6, 2}, RowChunk{3, 0, 4}));
  EXPECT_THAT(RunsOf(shape, Side::kTarget, 2), ElementsAre(TokenRun{0, 5}, TokenRun{9, 2}, TokenRun{16, 4}));
  EXPECT_THAT(ChunksOf(shape, Side::kTarget, 1), IsEmpty());
  EXPECT_THAT(SamplesOn(shape, 2), ElementsAre(true, true, false, true));
  EXPECT_THAT(SamplesOn(shape, 1), ElementsAre(false, false, false, false));
}

TEST(Share, WithoutSpansIsEverything) {
  const MicroBatch shape = Packed({3, 8}, {});
  EXPECT_THAT(ChunksOf(shape, Side::kTarget, 0), ElementsAre(RowChunk{0, 0, 3}, RowChunk{1, 0, 8}));
  EXPECT_FALSE(AnyRowIsDivided(shape));
  EXPECT_TRUE(CheckSpans(shape, Side::kTarget, 1).ok());
}

TEST(Share, SendsWhatQueriesOfTheOtherComeBehind) {
  // Chunks of two tokens: ranks 0 to 3 have (0, 7), (1, 6), (2, 5) and (3, 4).
  const MicroBatch shape = Packed({16}, {{0, 4}});
  EXPECT_THAT(ChunksSent(shape, 1, 2), ElementsAre(RowChunk{0, 2, 2}));
  EXPECT_THAT(ChunksSent(shape, 2, 1), ElementsAre(RowChunk{0, 4, 2}, RowChunk{0, 10, 2}));
  EXPECT_THAT(ChunksSent(shape, 1, 1), IsEmpty());
}

TEST(Share, OfRectanglesCountsPadding) {
  MicroBatch shape;
  shape.layout = Layout::kConcatenated;
  shape.sample_ids = {5, 6, 7};
  shape.rows = 2;
  shape.target_length = 8;
  shape.row_samples = {0, 2, 3};
  shape.spans = {{0, 2}, {1, 1}};
  EXPECT_THAT(ChunksOf(shape, Side::kTarget, 1),
              ElementsAre(RowChunk{0, 2, 2}, RowChunk{0, 4, 2}, RowChunk{1, 0, 8}));
  EXPECT_THAT(RunsOf(shape, Side::kTarget, 1), ElementsAre(TokenRun{2, 4}, TokenRun{8, 8}));
  EXPECT_THAT(SamplesOn(shape, 0), ElementsAre(true, true, false));
}

TEST(Share, RefusesSpansThatCannotBe) {
  const auto message = [](const std::vector<Span>& spans, int contexts) {
    return std::string(CheckSpans(Packed({9, 7}, spans), Side::kTarget, contexts).message());
  };
  EXPECT_EQ(message({{0, 4}, {2, 1}}, 4), "");
  EXPECT_THAT(message({{0, 1}}, 4), HasSubstr("spans: 1 for 2 rows"));
  EXPECT_THAT(message({}, 4), HasSubstr("spans: 0 for 2 rows"));
  EXPECT_THAT(message({{1, 2}, {0, 1}}, 4), HasSubstr("span of row 0: 2 context ranks from 1 on"));
  EXPECT_THAT(message({{0, 1}, {0, 3}}, 4), HasSubstr("span of row 1: 3 context ranks"));
  EXPECT_THAT(message({{0, 1}, {4, 1}}, 4), HasSubstr("of 4"));
  EXPECT_THAT(message({{0, 0}, {0, 1}}, 4), HasSubstr("span of row 0: 0"));
  EXPECT_THAT(message({{0, 1}, {0, 4}}, 4), HasSubstr("but the row has 7 tokens"));
  EXPECT_THAT(message({{0, 1}, {1, 1}}, 1), HasSubstr("span of row 1"));
}

// Placements of up to eight ranks, spans of every size, lengths from the least on.
class RandomPlacement {
 public:
  explicit RandomPlacement(uint32_t seed) : random_(seed) {
    contexts = 1 << Below(4);
    std::vector<int32_t> lengths;
    std::vector<Span> spans;
    for (int64_t rows = 1 + Below(6); rows > 0; --rows) {
      uint32_t ranks = 1;
      while (ranks < static_cast<uint32_t>(contexts) && Below(2) == 0) ranks *= 2;
      const auto places = static_cast<int64_t>(static_cast<uint32_t>(contexts) / ranks);
      spans.push_back({static_cast<uint32_t>(Below(places)) * ranks, ranks});
      lengths.push_back(static_cast<int32_t>((ranks == 1 ? 1 : 2 * ranks) + Below(40)));
    }
    shape = Packed(lengths, spans);
  }

  int contexts = 1;
  MicroBatch shape;

 private:
  int64_t Below(int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(random_); }

  std::mt19937 random_;
};

constexpr uint32_t kPlacements = 4000;

TEST(Share, HasEveryTokenOnExactlyOneRank) {
  for (uint32_t seed = 0; seed < kPlacements; ++seed) {
    const RandomPlacement placement(seed);
    ASSERT_TRUE(CheckSpans(placement.shape, Side::kTarget, placement.contexts).ok());
    std::vector<int> ranks(static_cast<size_t>(placement.shape.target_cu_seqlens.back()));
    for (int context = 0; context < placement.contexts; ++context) {
      int64_t tokens = 0;
      for (const TokenRun& run : RunsOf(placement.shape, Side::kTarget, context)) {
        for (int64_t i = run.begin; i < run.begin + run.length; ++i) ++ranks[static_cast<size_t>(i)];
        tokens += run.length;
      }
      EXPECT_EQ(TokensOn(placement.shape, Side::kTarget, context), tokens);
    }
    ASSERT_TRUE(std::ranges::all_of(ranks, [](int count) { return count == 1; })) << seed;
  }
}

using Places = std::set<std::pair<size_t, int64_t>>;

Places PlacesOf(const std::vector<RowChunk>& chunks) {
  Places places;
  for (const RowChunk& chunk : chunks) {
    EXPECT_GT(chunk.length, 0);
    for (int64_t i = 0; i < chunk.length; ++i) EXPECT_TRUE(places.emplace(chunk.row, chunk.first + i).second);
  }
  return places;
}

// Token by token: what lies on `from` and is seen by a query on `to`.
Places SeenBy(const Places& from, const Places& to) {
  std::map<size_t, int64_t> last;
  for (const auto& [row, place] : to) last[row] = std::max(last[row], place);
  Places seen;
  for (const auto& [row, place] : from) {
    if (last.contains(row) && place <= last[row]) seen.emplace(row, place);
  }
  return seen;
}

TEST(Share, SendsExactlyTheKeysThatQueriesSee) {
  for (uint32_t seed = 0; seed < kPlacements; ++seed) {
    const RandomPlacement placement(seed);
    std::vector<Places> has;
    for (int context = 0; context < placement.contexts; ++context) {
      has.push_back(PlacesOf(ChunksOf(placement.shape, Side::kTarget, context)));
    }
    for (int from = 0; from < placement.contexts; ++from) {
      for (int to = 0; to < placement.contexts; ++to) {
        const std::vector<RowChunk> sent = ChunksSent(placement.shape, from, to);
        ASSERT_TRUE(std::ranges::is_sorted(sent, {}, &RowChunk::row));
        const Places seen = SeenBy(has[static_cast<size_t>(from)], has[static_cast<size_t>(to)]);
        ASSERT_EQ(PlacesOf(sent), from == to ? Places() : seen) << seed;
      }
    }
  }
}

// Pairs of a query and a key that it sees.
TEST(Share, DividesTheCausalWorkOfARowEvenly) {
  const MicroBatch shape = Packed({4096}, {{0, 4}});
  for (int context = 0; context < 4; ++context) {
    int64_t pairs = 0;
    for (const RowChunk& chunk : ChunksOf(shape, Side::kTarget, context)) {
      for (int64_t i = chunk.first; i < chunk.first + chunk.length; ++i) pairs += i + 1;
    }
    EXPECT_EQ(pairs, 4096 * 4097 / 2 / 4);
  }
}

}  // namespace
}  // namespace penstock::worker
