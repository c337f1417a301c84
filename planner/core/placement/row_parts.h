// Divides the rows of a micro-batch into parts that passes go through in turn (core/steps), so that every
// context rank has about as much work in each of them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/share.h"
#include "planner/core/placement/load_model.h"

namespace penstock::core {

// Of each row, its part.
using PartOfRow = std::vector<uint8_t>;

class RowParts {
 public:
  explicit RowParts(const CostModel& costs) : model_(costs), contexts_(costs.group().context) {}

  // Rows whose ranks get most of them first, each to the part in which its ranks have least, as longest
  // processing time first (Graham 1969, "Bounds on multiprocessing timing anomalies"). Empty where a part
  // would be. `spans`: one for each row.
  PartOfRow Divide(absl::Span<const Row> rows, absl::Span<const Span> spans, int parts);

 private:
  LoadModel model_;
  int contexts_;
  // Of the rows that are divided: work on each of their ranks, and from the most of it to the least.
  std::vector<double> work_ns_;
  std::vector<uint32_t> order_;
  // [part * context ranks + context rank], and of each part over all of these.
  std::vector<double> load_ns_;
  std::vector<double> part_ns_;
};

// The shares of a part's rows, one for each context rank.
void SharesOfPart(absl::Span<const Row> rows, absl::Span<const SampleTokens> tokens,
                  absl::Span<const Span> spans, const PartOfRow& part_of_row, int part, const Nodes& nodes,
                  int contexts, std::vector<Share>* shares);

}  // namespace penstock::core
