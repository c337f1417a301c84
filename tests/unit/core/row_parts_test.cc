#include "planner/core/placement/row_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
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
    std::vector<std::vector<double>> tokens(1 + *std::max_element(parts.begin(), parts.end()),
                                            std::vector<double>(kContexts, 0));
    for (size_t row = 0; row < rows.size(); ++row) {
      for (int rank = spans[row].first; rank < spans[row].first + spans[row].ranks; ++rank)
        tokens[parts[row]][rank] += static_cast<double>(rows[row].length) / spans[row].ranks;
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
        EXPECT_TRUE(std::find(part_of_row.begin(), part_of_row.end(), part) != part_of_row.end());
    }
  }
}

}  // namespace
}  // namespace penstock::core
