// Divides the rows of a micro-batch into parts that passes go through in turn (core/steps), so that every
// context rank has about as much work in each of them, and what one has more in a part others have, too:
// they meet in every exchange. Rows that context ranks divide may be cut in the middle of their chunks: then
// each of these ranks has one chunk on either side.
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
  // divided rows of which ranks get most are cut. At last ranks let their parts change places, as far as they
  // have them alone, so that all have most in the same ones. Empty where a part would be, or where there are
  // no such rows. `spans`: one for each row; `cut_rows`: below `parts`.
  PartOfRow Divide(absl::Span<const Row> rows, absl::Span<const Span> spans, int parts, int cut_rows = 0);

 private:
  // Into order_.
  void OrderByWork(absl::Span<const Row> rows, absl::Span<const Span> spans);
  // To a part, so much of each of the ranks' work.
  void Load(const Span& span, int part, double work_ns);
  // The part in which the ranks of the span have least.
  int LeastLoaded(const Span& span, int parts) const;
  // The same, but ranks have most in the same parts, as far as rows that one rank has alone allow it and no
  // part is left empty.
  PartOfRow Aligned(absl::Span<const Span> spans, const PartOfRow& part_of_row);
  // [part]: the part that what a rank has alone of this one goes to, so that the rank has no more in its
  // largest part, and the sum over the parts is least of what the slowest rank has. `slowest`: of the others.
  std::vector<int> BestOrder(int rank, absl::Span<const double> slowest) const;
  // What a rank then has in the part order[part].
  double LoadInOrder(int rank, absl::Span<const int> order, int part) const;
  size_t At(int part, int rank) const { return static_cast<size_t>(part) * contexts_ + rank; }

  LoadModel model_;
  int contexts_;
  // Of the rows that are divided: work on each of their ranks, and from the most of it to the least.
  std::vector<double> work_ns_;
  std::vector<uint32_t> order_;
  // [part * context ranks + context rank], and of each part over all of these.
  std::vector<double> load_ns_;
  std::vector<double> part_ns_;
  // Of load_ns_ what is of rows that one rank has alone and that are not cut.
  std::vector<double> alone_ns_;
};

// The shares of a part's rows, one for each context rank.
void SharesOfPart(absl::Span<const Row> rows, absl::Span<const SampleTokens> tokens,
                  absl::Span<const Span> spans, const PartOfRow& part_of_row, int part, const Nodes& nodes,
                  int contexts, std::vector<Share>* shares);

}  // namespace penstock::core
