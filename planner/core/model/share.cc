#include "planner/core/model/share.h"

#include <algorithm>
#include <cstddef>

namespace penstock::core {
namespace {

// Tokens [begin, end) of a row.
struct Part {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

Part Chunk(int64_t length, int32_t ranks, int64_t index) {
  return {ChunkBegin(length, ranks, index), ChunkBegin(length, ranks, index + 1)};
}

// Places in the part that the loss counts: the last `loss` ones of each sample that have a token behind them.
int64_t LossIn(const Row& row, absl::Span<const SampleTokens> tokens, const Part& part) {
  int64_t loss = 0;
  int64_t end = 0;
  for (const uint32_t sample : row.samples) {
    end += tokens[sample].target;
    const int64_t first = end - 1 - tokens[sample].loss;
    loss += std::max<int64_t>(0, std::min(end - 1, part.end) - std::max(first, part.begin));
  }
  return loss;
}

void AddWhole(const Row& row, absl::Span<const SampleTokens> tokens, Share* share) {
  const auto length = static_cast<double>(row.length);
  share->sums.target += length;
  share->sums.target_square += length * length - row.less_square;
  ++share->sums.rows;
  for (const uint32_t sample : row.samples) share->sums.loss += tokens[sample].loss;
}

// What the `index`-th rank of the span has.
void AddPart(const Row& row, absl::Span<const SampleTokens> tokens, int32_t ranks, int32_t index, Link link,
             Share* share) {
  const Part head = Chunk(row.length, ranks, index);
  const Part tail = Chunk(row.length, ranks, 2 * int64_t{ranks} - 1 - index);
  const auto length = static_cast<double>(row.length);
  const double square = (length * length - row.less_square) / ranks;
  share->sums.target += static_cast<double>(head.size() + tail.size());
  share->sums.target_square += square;
  ++share->sums.rows;
  share->sums.loss += static_cast<double>(LossIn(row, tokens, head) + LossIn(row, tokens, tail));
  share->divided_square += square;
  share->divided_tokens += row.length;
  ++share->sums.divided_rows;
  // Ranks before it need its last chunk too, those behind it its first alone; and the other way round.
  const auto at = static_cast<size_t>(link);
  share->sent[at] += (ranks - 1 - index) * head.size() + index * (head.size() + tail.size());
  share->received[at] += head.begin + tail.begin - head.end;
}

// What the `index`-th rank of the span has of a part of the row, and exchanges in it.
class RowPart {
 public:
  RowPart(const Row& row, int32_t ranks, const ChunkRange& part)
      : row_(row), ranks_(ranks), begin_(part.begin), end_(part.end > 0 ? part.end : 2 * int64_t{ranks}) {}

  void AddTo(absl::Span<const SampleTokens> tokens, int32_t index, Link link, Share* share) const {
    const int64_t first = index, last = LastOf(index);
    // Chunk i has so many times the attention of the first half of the first chunk.
    int64_t weight = 0;
    for (const int64_t own : {first, last}) {
      if (!Has(own)) continue;
      const Part chunk = Chunk(row_.length, ranks_, own);
      share->sums.target += static_cast<double>(chunk.size());
      share->sums.loss += static_cast<double>(LossIn(row_, tokens, chunk));
      weight += 2 * own + 1;
    }
    const auto length = static_cast<double>(row_.length);
    const double square = (length * length - row_.less_square) * static_cast<double>(weight) /
                          (4 * static_cast<double>(ranks_) * ranks_);
    share->sums.target_square += square;
    share->divided_square += square;
    share->divided_tokens += row_.length;
    if (weight > 0) {
      ++share->sums.rows;
      ++share->sums.divided_rows;
    }
    const auto at = static_cast<size_t>(link);
    share->sent[at] += SentOf(index, first) + SentOf(index, last);
    share->received[at] += Received(first, last);
  }

 private:
  bool Has(int64_t chunk) const { return chunk >= begin_ && chunk < end_; }
  int64_t LastOf(int32_t index) const { return 2 * int64_t{ranks_} - 1 - index; }
  int64_t Begin(int64_t chunk) const { return ChunkBegin(row_.length, ranks_, chunk); }

  // Of a chunk of a rank, to all others whose first query behind it is in the part.
  int64_t SentOf(int32_t index, int64_t chunk) const {
    int64_t to = 0;
    for (int32_t other = 0; other < ranks_; ++other) {
      if (other == index || LastOf(other) < chunk) continue;
      if (Has(other > chunk ? int64_t{other} : LastOf(other))) ++to;
    }
    return to * (Begin(chunk + 1) - Begin(chunk));
  }

  // All before the first chunk, and all between it and the last one.
  int64_t Received(int64_t first, int64_t last) const {
    return (Has(first) ? Begin(first) : 0) + (Has(last) ? Begin(last) - Begin(first + 1) : 0);
  }

  const Row& row_;
  const int32_t ranks_;
  const int64_t begin_;
  const int64_t end_;
};

}  // namespace

std::vector<Row> RowsOf(absl::Span<const uint32_t> samples, absl::Span<const SampleTokens> tokens,
                        Layout layout, RowLengths row) {
  std::vector<Row> rows;
  rows.reserve(samples.size());
  if (layout == Layout::kConcatenated) {
    size_t begin = 0;
    ForEachRow(samples, tokens, row, [&](size_t end) {
      rows.push_back({row.target, row.less_square, samples.subspan(begin, end - begin)});
      begin = end;
    });
    return rows;
  }
  SampleTokens longest;
  for (const uint32_t sample : samples)
    if (tokens[sample].target > longest.target) longest = tokens[sample];
  for (size_t i = 0; i < samples.size(); ++i) {
    const SampleTokens& computed = layout == Layout::kPadded ? longest : tokens[samples[i]];
    rows.push_back({computed.target, computed.less_square, samples.subspan(i, 1)});
  }
  return rows;
}

Share WholeShare(const TokenSums& sums) {
  Share share;
  share.sums = sums;
  return share;
}

void SharesOf(absl::Span<const Row> rows, absl::Span<const SampleTokens> tokens, absl::Span<const Span> spans,
              const Nodes& nodes, int contexts, std::vector<Share>* shares,
              absl::Span<const ChunkRange> chunks) {
  shares->assign(contexts, Share());
  for (size_t i = 0; i < rows.size(); ++i) {
    const Span& span = spans[i];
    if (span.ranks == 1) {
      AddWhole(rows[i], tokens, &(*shares)[span.first]);
      continue;
    }
    const Link link = nodes.OfSpan(span.first, span.ranks);
    const ChunkRange part = chunks.empty() ? ChunkRange() : chunks[i];
    for (int32_t index = 0; index < span.ranks; ++index) {
      Share* const share = &(*shares)[span.first + index];
      if (part.is_all()) {
        AddPart(rows[i], tokens, span.ranks, index, link, share);
      } else {
        RowPart(rows[i], span.ranks, part).AddTo(tokens, index, link, share);
      }
    }
  }
}

}  // namespace penstock::core
