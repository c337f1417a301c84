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
  for (int rank = span.first; rank < span.first + span.ranks; ++rank) load_ns_[At(part, rank)] += work_ns;
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

double RowParts::LoadInOrder(int rank, absl::Span<const int> order, int part) const {
  const size_t to = At(order[part], rank);
  return load_ns_[to] - alone_ns_[to] + alone_ns_[At(part, rank)];
}

std::vector<int> RowParts::BestOrder(int rank, absl::Span<const double> slowest) const {
  std::vector<int> order(slowest.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<int> best;
  double most = 0;
  double least = 0;
  do {
    double largest = 0;
    double sum = 0;
    for (size_t part = 0; part < order.size(); ++part) {
      const double load = LoadInOrder(rank, order, static_cast<int>(part));
      largest = std::max(largest, load);
      sum += std::max(load, slowest[order[part]]);
    }
    // The first order is that of now.
    if (best.empty()) most = largest;
    if (!best.empty() && (largest > most || sum >= least)) continue;
    least = sum;
    best = order;
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

PartOfRow RowParts::Aligned(absl::Span<const Span> spans, const PartOfRow& part_of_row) {
  const auto is_alone = [&](size_t row) { return spans[row].ranks == 1 && !part_of_row[row].cut; };
  alone_ns_.assign(load_ns_.size(), 0);
  for (size_t row = 0; row < spans.size(); ++row)
    if (is_alone(row)) alone_ns_[At(part_of_row[row].part, spans[row].first)] += work_ns_[row];
  std::vector<double> slowest(part_ns_.size(), 0);
  std::vector<std::vector<int>> orders;
  for (int rank = 0; rank < contexts_; ++rank) {
    const std::vector<int>& order = orders.emplace_back(BestOrder(rank, slowest));
    for (size_t part = 0; part < order.size(); ++part) {
      double& of_part = slowest[order[part]];
      of_part = std::max(of_part, LoadInOrder(rank, order, static_cast<int>(part)));
    }
  }
  if (*std::min_element(slowest.begin(), slowest.end()) <= 0) return part_of_row;
  PartOfRow aligned = part_of_row;
  for (size_t row = 0; row < spans.size(); ++row) {
    if (is_alone(row))
      aligned[row].part = static_cast<uint8_t>(orders[spans[row].first][part_of_row[row].part]);
  }
  return aligned;
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
  return Aligned(spans, part_of_row);
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
