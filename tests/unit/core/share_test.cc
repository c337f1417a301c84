// What each context rank has of a micro-batch, against a count of every single token.
#include "planner/core/model/share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/core/random_job.h"

namespace penstock::core {
namespace {

Topology OneGroup(int contexts) {
  PipelineShape shape;
  shape.stages.resize(1);
  shape.positions = 1;
  shape.position_of_stage = {0};
  shape.group = {contexts, 1};
  return {shape, 1};
}

// A place of a row.
struct Token {
  int row = 0;
  int place = 0;
  // The context rank that has it.
  int owner = -1;
  // Whether the loss counts what is predicted there.
  bool loss = false;
};

// A micro-batch, token by token.
struct DividedBatch {
  int contexts = 1;
  int ranks_per_node = 1;
  Layout layout = Layout::kPacked;
  RowLengths row;
  std::vector<SampleTokens> tokens;
  std::vector<uint32_t> samples;
  std::vector<Span> spans;
  // Lengths of the rows, and for each which of its places the loss counts.
  std::vector<std::vector<bool>> loss;

  std::string Describe() const {
    std::string text = absl::StrCat(contexts, " context ranks, ", ranks_per_node, " a node, layout ",
                                    static_cast<int>(layout), "\n");
    for (size_t i = 0; i < spans.size(); ++i) {
      absl::StrAppend(&text, "row of ", loss[i].size(), " over ", spans[i].ranks, " from ", spans[i].first,
                      "\n");
    }
    return text;
  }
};

// Which places of a sample predict what the loss counts: from the sample's definition, place by place.
void AppendSample(const SampleTokens& sample, std::vector<bool>* row) {
  for (uint32_t place = 0; place < sample.target; ++place) {
    const uint32_t predicted = place + 1;
    row->push_back(predicted < sample.target && predicted >= sample.target - sample.loss);
  }
}

std::vector<std::vector<bool>> LossOfRows(const DividedBatch& given) {
  std::vector<std::vector<bool>> rows;
  if (given.layout != Layout::kConcatenated) {
    size_t longest = 0;
    for (const uint32_t sample : given.samples) {
      AppendSample(given.tokens[sample], &rows.emplace_back());
      longest = std::max(longest, rows.back().size());
    }
    if (given.layout == Layout::kPadded) {
      for (std::vector<bool>& row : rows) row.resize(longest, false);
    }
    return rows;
  }
  const auto length = static_cast<size_t>(given.row.target);
  for (const uint32_t sample : given.samples) {
    if (rows.empty() || rows.back().size() + given.tokens[sample].target > length) rows.emplace_back();
    AppendSample(given.tokens[sample], &rows.back());
  }
  for (std::vector<bool>& row : rows) row.resize(length, false);
  return rows;
}

Span RandomSpan(int contexts, int64_t length, Random* random) {
  int32_t ranks = 1;
  while (2 * ranks <= contexts && 4 * ranks <= length && random->Chance(60)) ranks *= 2;
  const auto places = static_cast<uint32_t>(contexts / ranks);
  return {static_cast<int32_t>(random->Range(0, places - 1)) * ranks, ranks};
}

DividedBatch RandomDividedBatch(uint64_t seed) {
  Random random(seed);
  DividedBatch given;
  given.contexts = 1 << random.Range(0, 3);
  given.ranks_per_node = 1 << random.Range(0, 3);
  given.layout = static_cast<Layout>(random.Range(0, 2));
  const uint32_t count = random.Range(1, 6);
  uint32_t longest = 0;
  for (uint32_t i = 0; i < count; ++i) {
    SampleTokens sample;
    sample.target = random.Range(1, random.Chance(50) ? 8 : 60);
    sample.loss = random.Range(0, sample.target - 1);
    longest = std::max(longest, sample.target);
    given.tokens.push_back(sample);
    given.samples.insert(given.samples.begin() + random.Range(0, i), i);
  }
  if (given.layout == Layout::kConcatenated)
    given.row.target = static_cast<int32_t>(longest + random.Range(0, 40));
  given.loss = LossOfRows(given);
  for (const std::vector<bool>& row : given.loss) {
    given.spans.push_back(RandomSpan(given.contexts, static_cast<int64_t>(row.size()), &random));
  }
  return given;
}

// Who has what: by the rule of the contract, chunk by chunk.
std::vector<Token> OwnersOf(const DividedBatch& given) {
  std::vector<Token> tokens;
  for (size_t row = 0; row < given.loss.size(); ++row) {
    const Span& span = given.spans[row];
    const auto length = static_cast<int>(given.loss[row].size());
    const int chunks = span.ranks == 1 ? 1 : 2 * span.ranks;
    for (int place = 0; place < length; ++place) {
      Token token{static_cast<int>(row), place, span.first, given.loss[row][place]};
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const bool inside = place >= chunk * length / chunks && place < (chunk + 1) * length / chunks;
        if (inside && chunks > 1) token.owner = span.first + std::min(chunk, chunks - 1 - chunk);
      }
      tokens.push_back(token);
    }
  }
  return tokens;
}

// Tokens whose keys each rank needs and does not have: those of the row before the last of its own.
struct Exchanged {
  std::vector<std::array<int64_t, kLinks>> sent;
  std::vector<std::array<int64_t, kLinks>> received;
};

Exchanged CountExchanged(const DividedBatch& given, const std::vector<Token>& tokens) {
  Exchanged exchanged;
  exchanged.sent.resize(given.contexts);
  exchanged.received.resize(given.contexts);
  for (const Token& key : tokens) {
    std::vector<bool> needed(given.contexts, false);
    for (const Token& query : tokens) {
      if (query.row == key.row && query.place >= key.place) needed[query.owner] = true;
    }
    // A span is inside a node where all its ranks are.
    const Span& span = given.spans[key.row];
    const bool inside =
        span.first / given.ranks_per_node == (span.first + span.ranks - 1) / given.ranks_per_node;
    const auto link = static_cast<size_t>(inside ? Link::kInsideNode : Link::kBetweenNodes);
    for (int rank = 0; rank < given.contexts; ++rank) {
      if (!needed[rank] || rank == key.owner) continue;
      ++exchanged.sent[key.owner][link];
      ++exchanged.received[rank][link];
    }
  }
  return exchanged;
}

class ShareTest : public testing::Test {
 protected:
  static std::vector<Share> Shares(const DividedBatch& given) {
    const std::vector<Row> rows = RowsOf(given.samples, given.tokens, given.layout, given.row);
    EXPECT_EQ(rows.size(), given.loss.size());
    std::vector<Share> shares;
    SharesOf(rows, given.tokens, given.spans, Nodes(OneGroup(given.contexts), given.ranks_per_node),
             given.contexts, &shares);
    return shares;
  }
};

constexpr int kCases = 1000;

TEST_F(ShareTest, EveryTokenAndEveryLossPositionIsOnOneContextRank) {
  for (int seed = 0; seed < kCases; ++seed) {
    const DividedBatch given = RandomDividedBatch(seed);
    const std::vector<Share> shares = Shares(given);
    std::vector<int64_t> tokens(given.contexts, 0);
    std::vector<int64_t> losses(given.contexts, 0);
    for (const Token& token : OwnersOf(given)) {
      ++tokens[token.owner];
      losses[token.owner] += token.loss ? 1 : 0;
    }
    for (int rank = 0; rank < given.contexts; ++rank) {
      ASSERT_EQ(shares[rank].sums.target, tokens[rank]) << "seed " << seed << "\n" << given.Describe();
      ASSERT_EQ(shares[rank].sums.loss, losses[rank]) << "seed " << seed << "\n" << given.Describe();
      ASSERT_EQ(shares[rank].sums.layout, Layout::kPacked);
    }
  }
}

TEST_F(ShareTest, SharesAddUpToTheMicroBatch) {
  for (int seed = 0; seed < kCases; ++seed) {
    const DividedBatch given = RandomDividedBatch(seed);
    const TokenSums whole = SumsOf(given.samples, given.tokens, given.layout, given.row);
    TokenSums sum;
    for (const Share& share : Shares(given)) {
      sum.target += share.sums.target;
      sum.target_square += share.sums.target_square;
      sum.loss += share.sums.loss;
    }
    ASSERT_EQ(sum.target, whole.target) << "seed " << seed << "\n" << given.Describe();
    ASSERT_EQ(sum.target_square, whole.target_square) << "seed " << seed << "\n" << given.Describe();
    ASSERT_EQ(sum.loss, whole.loss) << "seed " << seed << "\n" << given.Describe();
  }
}

TEST_F(ShareTest, KeysGoToWhomeverSeesThem) {
  for (int seed = 0; seed < kCases; ++seed) {
    const DividedBatch given = RandomDividedBatch(seed);
    const std::vector<Share> shares = Shares(given);
    const Exchanged expected = CountExchanged(given, OwnersOf(given));
    for (int rank = 0; rank < given.contexts; ++rank) {
      ASSERT_EQ(shares[rank].sent, expected.sent[rank]) << "seed " << seed << "\n" << given.Describe();
      ASSERT_EQ(shares[rank].received, expected.received[rank]) << "seed " << seed << "\n"
                                                                << given.Describe();
    }
  }
}

TEST_F(ShareTest, DividedRowsAreKnownApart) {
  for (int seed = 0; seed < kCases; ++seed) {
    const DividedBatch given = RandomDividedBatch(seed);
    std::vector<int64_t> tokens(given.contexts, 0);
    std::vector<double> squares(given.contexts, 0);
    std::vector<int32_t> rows(given.contexts, 0);
    for (size_t row = 0; row < given.spans.size(); ++row) {
      const Span& span = given.spans[row];
      const auto length = static_cast<int64_t>(given.loss[row].size());
      for (int rank = span.first; rank < span.first + span.ranks && span.ranks > 1; ++rank) {
        tokens[rank] += length;
        ++rows[rank];
        squares[rank] += static_cast<double>(length * length) / span.ranks;
      }
    }
    const std::vector<Share> shares = Shares(given);
    for (int rank = 0; rank < given.contexts; ++rank) {
      ASSERT_EQ(shares[rank].divided_tokens, tokens[rank]) << "seed " << seed;
      ASSERT_EQ(shares[rank].sums.divided_rows, rows[rank]) << "seed " << seed;
      ASSERT_EQ(shares[rank].divided_square, squares[rank]) << "seed " << seed;
      ASSERT_EQ(shares[rank].exchanges(), tokens[rank] > 0) << "seed " << seed;
    }
  }
}

// Causal attention in the zigzag: each rank of a span sees as many keys as any other, but for rounding.
TEST_F(ShareTest, RanksOfASpanHaveEqualPartsOfAttention) {
  for (const int contexts : {2, 4, 8}) {
    DividedBatch given;
    given.contexts = contexts;
    given.tokens = {{0, 64, 10}};
    given.samples = {0};
    given.spans = {{0, contexts}};
    given.loss = LossOfRows(given);
    std::vector<int64_t> seen(contexts, 0);
    for (const Token& token : OwnersOf(given)) seen[token.owner] += token.place + 1;
    for (const int64_t keys : seen) EXPECT_EQ(keys, 64 * 65 / 2 / contexts);
  }
}

// Of a token: the chunk that it is in.
int ChunkOf(const DividedBatch& given, const Token& token) {
  const int ranks = given.spans[token.row].ranks, chunks = ranks == 1 ? 1 : 2 * ranks;
  const auto length = static_cast<int>(given.loss[token.row].size());
  int chunk = 0;
  while (token.place >= (chunk + 1) * length / chunks) ++chunk;
  return chunk;
}

// Rows and chunks where parts begin but for the first, ascending.
using PartBegins = std::vector<std::pair<int, int>>;

PartBegins DrawParts(const DividedBatch& given, Random* random) {
  PartBegins begins;
  for (size_t row = 0; row < given.spans.size(); ++row) {
    const int ranks = given.spans[row].ranks;
    for (int chunk = 0; chunk < (ranks == 1 ? 1 : 2 * ranks); ++chunk) {
      if (row + chunk > 0 && random->Chance(25)) begins.emplace_back(static_cast<int>(row), chunk);
    }
  }
  return begins;
}

int PartOfToken(const DividedBatch& given, const PartBegins& begins, const Token& token) {
  const std::pair place(token.row, ChunkOf(given, token));
  return static_cast<int>(std::upper_bound(begins.begin(), begins.end(), place) - begins.begin());
}

// [part][rank], token by token: keys go with the first query of their row that a rank has behind them.
struct SumsOfParts {
  std::vector<std::vector<int64_t>> tokens, losses, sent, received;
  std::vector<std::vector<double>> squares;
};

SumsOfParts CountParts(const DividedBatch& given, const PartBegins& begins) {
  const std::vector<Token> tokens = OwnersOf(given);
  const std::vector<std::vector<int64_t>> none(begins.size() + 1, std::vector<int64_t>(given.contexts, 0));
  SumsOfParts sums{none, none, none, none, {}};
  sums.squares.assign(begins.size() + 1, std::vector<double>(given.contexts, 0));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    const int part = PartOfToken(given, begins, token), chunk = ChunkOf(given, token);
    ++sums.tokens[part][token.owner];
    if (token.loss) ++sums.losses[part][token.owner];
    const Span& span = given.spans[token.row];
    const bool first_of_chunk =
        i == 0 || tokens[i - 1].row != token.row || ChunkOf(given, tokens[i - 1]) != chunk;
    const auto length = static_cast<double>(given.loss[token.row].size());
    if (first_of_chunk)
      sums.squares[part][token.owner] +=
          span.ranks == 1 ? length * length
                          : length * length * (2 * chunk + 1) / (4.0 * span.ranks * span.ranks);
    std::vector<bool> seen(given.contexts, false);
    for (size_t j = i; j < tokens.size() && tokens[j].row == token.row; ++j) {
      const int rank = tokens[j].owner;
      if (seen[rank] || rank == token.owner) continue;
      seen[rank] = true;
      const int of_query = PartOfToken(given, begins, tokens[j]);
      ++sums.sent[of_query][token.owner];
      ++sums.received[of_query][rank];
    }
  }
  return sums;
}

TEST_F(ShareTest, PartsMayBeginInsideOfRows) {
  for (int seed = 0; seed < kCases; ++seed) {
    const DividedBatch given = RandomDividedBatch(seed);
    Random random(seed + kCases);
    const PartBegins begins = DrawParts(given, &random);
    const SumsOfParts expected = CountParts(given, begins);
    const std::vector<Row> rows = RowsOf(given.samples, given.tokens, given.layout, given.row);
    const std::pair end(static_cast<int>(rows.size()), 0);
    for (size_t part = 0; part <= begins.size(); ++part) {
      const std::pair from = part == 0 ? std::pair(0, 0) : begins[part - 1];
      const std::pair to = part == begins.size() ? end : begins[part];
      std::vector<Row> of_part;
      std::vector<Span> spans;
      std::vector<ChunkRange> chunks;
      for (int row = from.first; row < to.first + (to.second > 0 ? 1 : 0); ++row) {
        of_part.push_back(rows[row]);
        spans.push_back(given.spans[row]);
        chunks.push_back(
            {.begin = row == from.first ? from.second : 0, .end = row == to.first ? to.second : 0});
      }
      std::vector<Share> shares;
      SharesOf(of_part, given.tokens, spans, Nodes(OneGroup(given.contexts), given.ranks_per_node),
               given.contexts, &shares, chunks);
      for (int rank = 0; rank < given.contexts; ++rank) {
        const Share& share = shares[rank];
        const auto both = [](const std::array<int64_t, kLinks>& links) { return links[0] + links[1]; };
        ASSERT_EQ(share.sums.target, expected.tokens[part][rank]) << "seed " << seed << given.Describe();
        ASSERT_EQ(share.sums.loss, expected.losses[part][rank]) << "seed " << seed << given.Describe();
        ASSERT_EQ(share.sums.target_square, expected.squares[part][rank]) << "seed " << seed;
        ASSERT_EQ(both(share.sent), expected.sent[part][rank]) << "seed " << seed << given.Describe();
        ASSERT_EQ(both(share.received), expected.received[part][rank]) << "seed " << seed;
        ASSERT_EQ(share.sums.rows > 0, expected.tokens[part][rank] > 0) << "seed " << seed;
      }
    }
  }
}

TEST_F(ShareTest, OneRankHasAll) {
  const TokenSums sums = SumsOf({0}, std::vector<SampleTokens>{{0, 9, 4}}, Layout::kPadded);
  const Share share = WholeShare(sums);
  EXPECT_EQ(share.sums.target, 9);
  EXPECT_EQ(share.sums.layout, Layout::kPadded);
  EXPECT_FALSE(share.exchanges());
}

}  // namespace
}  // namespace penstock::core
