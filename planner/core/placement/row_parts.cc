#include "planner/core/placement/row_parts.h"

#include <algorithm>
#include <numeric>

namespace penstock::core {

namespace {

// The first of two parts between which the `index`-th row is cut. At first every other place, so that parts
// have one half each.
int PartOfCut(int index, int parts) { return index < parts / 2 ? 2 * index : 2 * (index - parts / 2) + 1; }

}  // namespace

int PartsIn(const PartOfRow& part_of_row) {
  int last = -1;
  for (const RowPlace& row : part_of_row) last = std::max(last, row.last_part());
  return last + 1;
}

void RowParts::OrderByWork(absl::Span<const Row> rows, absl::Span<const Span> spans) {
  work_ns_.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto length = static_cast<double>(rows[i].length);
    work_ns_[i] = model_.WorkNs(length, length) / spans[i].ranks;
  }
  order_.resize(rows.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
    return work_ns_[a] != work_ns_[b] ? work_ns_[a] > work_ns_[b] : a < b;
  });
}

void RowParts::Load(const Span& span, int part, double work_ns) {
  part_ns_[part] += work_ns * span.ranks;
  for (int rank = span.first; rank < span.first + span.ranks; ++rank)
    load_ns_[static_cast<size_t>(part) * contexts_ + rank] += work_ns;
}

int RowParts::LeastLoaded(const Span& span, int parts) const {
  int best = 0;
  double least = 0;
  for (int part = 0; part < parts; ++part) {
    const auto begin = load_ns_.begin() + static_cast<ptrdiff_t>(part) * contexts_ + span.first;
    const double most = *std::max_element(begin, begin + span.ranks);
    if (part > 0 && (most > least || (most == least && part_ns_[part] >= part_ns_[best]))) continue;
    best = part;
    least = most;
  }
  return best;
}

PartOfRow RowParts::Divide(absl::Span<const Row> rows, absl::Span<const Span> spans, int parts,
                           int cut_rows) {
  if (rows.size() + cut_rows < static_cast<size_t>(parts)) return {};
  OrderByWork(rows, spans);
  load_ns_.assign(static_cast<size_t>(parts) * contexts_, 0);
  part_ns_.assign(parts, 0);
  PartOfRow part_of_row(rows.size());
  int cut = 0;
  for (size_t i = 0; cut < cut_rows && i < order_.size(); ++i) {
    const uint32_t row = order_[i];
    if (spans[row].ranks == 1) continue;
    const int first = PartOfCut(cut++, parts);
    part_of_row[row] = {.part = static_cast<uint8_t>(first), .cut = true};
    for (const int part : {first, first + 1}) Load(spans[row], part, work_ns_[row] / 2);
  }
  if (cut < cut_rows) return {};
  for (const uint32_t row : order_) {
    if (part_of_row[row].cut) continue;
    const int part = LeastLoaded(spans[row], parts);
    part_of_row[row].part = static_cast<uint8_t>(part);
    Load(spans[row], part, work_ns_[row]);
  }
  if (*std::min_element(part_ns_.begin(), part_ns_.end()) <= 0) return {};
  return part_of_row;
}

void SharesOfPart(absl::Span<const Row> rows, absl::Span<const SampleTokens> tokens,
                  absl::Span<const Span> spans, const PartOfRow& part_of_row, int part, const Nodes& nodes,
                  int contexts, std::vector<Share>* shares) {
  std::vector<Row> rows_of_part;
  std::vector<Span> spans_of_part;
  std::vector<ChunkRange> chunks;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (part_of_row[i].part != part && part_of_row[i].last_part() != part) continue;
    rows_of_part.push_back(rows[i]);
    spans_of_part.push_back(spans[i]);
    ChunkRange& range = chunks.emplace_back();
    if (part_of_row[i].cut) (part_of_row[i].part == part ? range.end : range.begin) = spans[i].ranks;
  }
  SharesOf(rows_of_part, tokens, spans_of_part, nodes, contexts, shares, chunks);
}

}  // namespace penstock::core
