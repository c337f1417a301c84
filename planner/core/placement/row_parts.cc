#include "planner/core/placement/row_parts.h"

#include <algorithm>
#include <numeric>

namespace penstock::core {

PartOfRow RowParts::Divide(absl::Span<const Row> rows, absl::Span<const Span> spans, int parts) {
  if (rows.size() < static_cast<size_t>(parts)) return {};
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
  load_ns_.assign(static_cast<size_t>(parts) * contexts_, 0);
  part_ns_.assign(parts, 0);
  PartOfRow part_of_row(rows.size());
  for (const uint32_t row : order_) {
    const Span& span = spans[row];
    int best = 0;
    double least = 0;
    for (int part = 0; part < parts; ++part) {
      const auto begin = load_ns_.begin() + static_cast<ptrdiff_t>(part) * contexts_ + span.first;
      const double most = *std::max_element(begin, begin + span.ranks);
      if (part > 0 && (most > least || (most == least && part_ns_[part] >= part_ns_[best]))) continue;
      best = part;
      least = most;
    }
    part_of_row[row] = static_cast<uint8_t>(best);
    part_ns_[best] += work_ns_[row] * span.ranks;
    for (int rank = span.first; rank < span.first + span.ranks; ++rank)
      load_ns_[static_cast<size_t>(best) * contexts_ + rank] += work_ns_[row];
  }
  if (*std::min_element(part_ns_.begin(), part_ns_.end()) <= 0) return {};
  return part_of_row;
}

void SharesOfPart(absl::Span<const Row> rows, absl::Span<const SampleTokens> tokens,
                  absl::Span<const Span> spans, const PartOfRow& part_of_row, int part, const Nodes& nodes,
                  int contexts, std::vector<Share>* shares) {
  std::vector<Row> rows_of_part;
  std::vector<Span> spans_of_part;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (part_of_row[i] != part) continue;
    rows_of_part.push_back(rows[i]);
    spans_of_part.push_back(spans[i]);
  }
  SharesOf(rows_of_part, tokens, spans_of_part, nodes, contexts, shares);
}

}  // namespace penstock::core
