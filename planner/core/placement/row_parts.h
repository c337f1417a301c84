// Divides the rows of a micro-batch into parts that passes go through in turn (core/steps), so that every
// context rank has about as much work in each of them. Rows that context ranks divide may be cut in the
// middle of their chunks: then each of these ranks has one chunk on either side.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "planner/core/cost/cost_model.h"
#include "planner/core/model/share.h"
#include "planner/core/placement/load_model.h"

namespace penstock::core {

// Where a row is: in this part, or, where it is cut, the first half of its chunks, the other one being in the
// next part.
struct RowPlace {
  uint8_t part = 0;
  bool cut = false;

  int last_part() const { return part + (cut ? 1 : 0); }
};

// Of each row. No two rows are cut between the same parts.
using PartOfRow = std::vector<RowPlace>;

// How many parts there are.
int PartsIn(const PartOfRow& part_of_row);

class RowParts {
 public:
  explicit RowParts(const CostModel& costs) : model_(costs), contexts_(costs.group().context) {}

  // Rows whose ranks get most of them first, each to the part in which its ranks have least, as longest
  // processing time first (Graham 1969, "Bounds on multiprocessing timing anomalies"). Before that, so many
  // divided rows of which ranks get most are cut. Empty where a part would be, or where there are no such
  // rows. `spans`: one for each row; `cut_rows`: below `parts`.
  PartOfRow Divide(absl::Span<const Row> rows, absl::Span<const Span> spans, int parts, int cut_rows = 0);

 private:
  // Into order_.
  void OrderByWork(absl::Span<const Row> rows, absl::Span<const Span> spans);
  // To a part, so much of each of the ranks' work.
  void Load(const Span& span, int part, double work_ns);
  // The part in which the ranks of the span have least.
  int LeastLoaded(const Span& span, int parts) const;

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
