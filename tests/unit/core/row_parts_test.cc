#include "planner/core/placement/row_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/unit/core/job_builder.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

constexpr int kContexts = 4;

Row RowOf(int64_t length) {
  Row row;
  row.length = length;
  return row;
}

v1::JobSpec JobOfContexts() {
  v1::JobSpec job = GptJob(1, 1, v1::POLICY_DYNAMIC);
  job.mutable_mesh()->set_context(kContexts);
  return job;
}

class RowPartsTest : public testing::Test {
 protected:
  // Tokens of each context rank in each part, [part][context rank].
  static std::vector<std::vector<double>> Tokens(const std::vector<Row>& rows, const std::vector<Span>& spans,
                                                 const PartOfRow& parts) {
    std::vector<std::vector<double>> tokens(PartsIn(parts), std::vector<double>(kContexts, 0));
    for (size_t row = 0; row < rows.size(); ++row) {
      const double each = static_cast<double>(rows[row].length) / spans[row].ranks / (parts[row].cut ? 2 : 1);
      for (int part = parts[row].part; part <= parts[row].last_part(); ++part) {
        for (int rank = spans[row].first; rank < spans[row].first + spans[row].ranks; ++rank)
          tokens[part][rank] += each;
      }
    }
    return tokens;
  }

  const CostModel costs_ = ModelOf(JobOfContexts());
};

TEST_F(RowPartsTest, EveryRankHasAsMuchInEachPartWhereRowsAreAlike) {
  std::vector<Row> rows(16, RowOf(100));
  std::vector<Span> spans;
  for (int32_t row = 0; row < 16; ++row) spans.push_back({.first = row / 4, .ranks = 1});
  for (const int parts : {2, 4}) {
    const auto tokens = Tokens(rows, spans, RowParts(costs_).Divide(rows, spans, parts));
    ASSERT_EQ(tokens.size(), static_cast<size_t>(parts));
    for (const std::vector<double>& of_part : tokens)
      EXPECT_EQ(of_part, std::vector<double>(kContexts, 400.0 / parts));
  }
}

TEST_F(RowPartsTest, RowsOfEveryRankGoBesideARowThatAllRanksDivide) {
  // One row over all ranks, and as many tokens in short ones on each.
  std::vector<Row> rows = {RowOf(400)};
  std::vector<Span> spans = {{.first = 0, .ranks = kContexts}};
  for (int32_t rank = 0; rank < kContexts; ++rank) {
    rows.push_back(RowOf(101));
    spans.push_back({.first = rank, .ranks = 1});
  }
  const auto tokens = Tokens(rows, spans, RowParts(costs_).Divide(rows, spans, 2));
  ASSERT_EQ(tokens.size(), 2U);
  for (int rank = 0; rank < kContexts; ++rank) EXPECT_NEAR(tokens[0][rank], tokens[1][rank], 1);
}

TEST_F(RowPartsTest, RanksHaveMostInTheSameParts) {
  // Of every rank one row is left over: ranks meet in each exchange and wait for who has most.
  std::vector<Row> rows;
  std::vector<Span> spans;
  for (int32_t rank = 0; rank < kContexts; ++rank) {
    for (int row = 0; row < 3; ++row) {
      rows.push_back(RowOf(100 + rank));
      spans.push_back({.first = rank, .ranks = 1});
    }
  }
  const auto tokens = Tokens(rows, spans, RowParts(costs_).Divide(rows, spans, 2));
  ASSERT_EQ(tokens.size(), 2U);
  EXPECT_EQ(tokens[0], (std::vector<double>{200, 202, 204, 206}));
  EXPECT_EQ(tokens[1], (std::vector<double>{100, 101, 102, 103}));
}

TEST_F(RowPartsTest, RanksThatDivideARowAreFollowedByTheOthers) {
  // Ranks 0 and 1 have most in the part of the row that they divide, of which the others have one each.
  const std::vector<Row> rows = {RowOf(4000), RowOf(1000), RowOf(1000), RowOf(1500),
                                 RowOf(900),  RowOf(1500), RowOf(900)};
  const std::vector<Span> spans = {{0, 2}, {0, 1}, {1, 1}, {2, 1}, {2, 1}, {3, 1}, {3, 1}};
  const PartOfRow parts = RowParts(costs_).Divide(rows, spans, 2);
  EXPECT_EQ(parts[3].part, parts[0].part);
  EXPECT_EQ(parts[5].part, parts[0].part);
}

TEST_F(RowPartsTest, ALoneRowIsCutInTheMiddle) {
  const std::vector<Row> rows = {RowOf(400)};
  const std::vector<Span> spans = {{.first = 0, .ranks = kContexts}};
  EXPECT_TRUE(RowParts(costs_).Divide(rows, spans, 2).empty());
  EXPECT_TRUE(RowParts(costs_).Divide(rows, spans, 3, /*cut_rows=*/1).empty());
  const auto tokens = Tokens(rows, spans, RowParts(costs_).Divide(rows, spans, 2, /*cut_rows=*/1));
  EXPECT_EQ(tokens, std::vector<std::vector<double>>(2, std::vector<double>(kContexts, 50)));
  const std::vector<Span> whole = {{.first = 1, .ranks = 1}};
  EXPECT_TRUE(RowParts(costs_).Divide(rows, whole, 2, /*cut_rows=*/1).empty());
}

TEST_F(RowPartsTest, TwoLongRowsMakeFourEvenParts) {
  const std::vector<Row> rows = {RowOf(400), RowOf(400)};
  const std::vector<Span> spans(2, {.first = 0, .ranks = kContexts});
  const auto tokens = Tokens(rows, spans, RowParts(costs_).Divide(rows, spans, 4, /*cut_rows=*/2));
  EXPECT_EQ(tokens, std::vector<std::vector<double>>(4, std::vector<double>(kContexts, 50)));
}

TEST_F(RowPartsTest, NoTwoRowsAreCutBetweenTheSameParts) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<Row> rows(random.Range(2, 9));
    for (Row& row : rows) row.length = random.Range(8, 5'000);
    const std::vector<Span> spans(rows.size(), {.first = 0, .ranks = kContexts});
    const int parts = static_cast<int>(random.Range(2, 4)),
              cut = static_cast<int>(random.Range(1, parts - 1));
    const PartOfRow part_of_row = RowParts(costs_).Divide(rows, spans, parts, cut);
    if (part_of_row.empty()) continue;
    EXPECT_EQ(PartsIn(part_of_row), parts);
    std::vector<int> cuts(parts, 0);
    for (const RowPlace& row : part_of_row)
      if (row.cut) ++cuts[row.part];
    EXPECT_EQ(std::accumulate(cuts.begin(), cuts.end(), 0), cut);
    EXPECT_LE(*std::max_element(cuts.begin(), cuts.end()), 1);
    EXPECT_EQ(cuts.back(), 0);
  }
}

TEST_F(RowPartsTest, NoPartIsEmpty) {
  Random random(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<Row> rows(random.Range(1, 12));
    std::vector<Span> spans;
    for (Row& row : rows) {
      row.length = random.Range(1, 5'000);
      const auto ranks = static_cast<int32_t>(1U << random.Range(0, 2));
      spans.push_back(
          {.first = static_cast<int32_t>(random.Range(0, kContexts / ranks - 1)) * ranks, .ranks = ranks});
    }
    for (int parts = 2; parts <= 4; ++parts) {
      const PartOfRow part_of_row = RowParts(costs_).Divide(rows, spans, parts);
      if (rows.size() < static_cast<size_t>(parts)) {
        EXPECT_TRUE(part_of_row.empty());
        continue;
      }
      ASSERT_EQ(part_of_row.size(), rows.size());
      for (int part = 0; part < parts; ++part)
        EXPECT_TRUE(std::any_of(part_of_row.begin(), part_of_row.end(),
                                [&](const RowPlace& row) { return row.part == part; }));
    }
  }
}

}  // namespace
}  // namespace penstock::core
