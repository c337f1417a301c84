// Rule 7: the parts that passes go through in turn hold every row of a micro-batch once, or every chunk of
// it, and there are some only where ranks divide experts (execution.md, section 7).
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

// Why no row is cut; empty: some may be.
std::string WhyNotCut(const PlanIndex& index, const v1::MicroBatch& micro_batch) {
  if (micro_batch.part_chunks_size() != micro_batch.part_rows_size())
    return absl::StrCat("it has ", micro_batch.part_chunks_size(), " entries for ",
                        micro_batch.part_rows_size(), " of part_rows");
  if (!micro_batch.whole_backward()) return "whole_backward is not";
  if (index.plan().model().expert_capacity_factor() > 0)
    return "experts have a capacity, which all of a sample decides";
  const auto& chunks = micro_batch.part_chunks();
  if (std::all_of(chunks.begin(), chunks.end(), [](uint32_t chunk) { return chunk == 0; }))
    return "no row is cut";
  return "";
}

// Parts that begin inside of rows, which are divided there. part_rows names rows that there are.
template <typename Fail>
void CheckCutRows(const PlanIndex& index, const v1::MicroBatch& micro_batch, const Fail& fail) {
  const auto& rows = micro_batch.part_rows();
  const auto& chunks = micro_batch.part_chunks();
  const std::string why = WhyNotCut(index, micro_batch);
  if (!why.empty()) return fail(absl::StrCat("part_chunks is set, but ", why));
  if (chunks[0] != 0 || chunks[chunks.size() - 1] != 0)
    return fail(absl::StrCat("part_chunks begins with ", chunks[0], " and ends with ",
                             chunks[chunks.size() - 1], "; the ends of a micro-batch cut no row"));
  for (int part = 0; part + 1 < rows.size(); ++part) {
    if (std::pair(rows[part], chunks[part]) >= std::pair(rows[part + 1], chunks[part + 1]))
      return fail(absl::StrCat("part ", part, " goes from chunk ", chunks[part], " of row ", rows[part],
                               " to chunk ", chunks[part + 1], " of row ", rows[part + 1],
                               "; no part is without a chunk"));
    const auto row = static_cast<int>(rows[part]);
    const uint64_t ranks = row < micro_batch.span_ranks_size() ? micro_batch.span_ranks(row) : 1;
    if (chunks[part] > 0 && (ranks == 1 || chunks[part] >= 2 * ranks))
      return fail(absl::StrCat("part ", part, " begins with chunk ", chunks[part], " of row ", rows[part],
                               ", which ",
                               ranks == 1 ? std::string("is not divided") : absl::StrCat("has ", 2 * ranks)));
  }
}

void CheckParts(const PlanIndex& index, const ReplicaMesh& mesh, const v1::MicroBatch& micro_batch,
                const std::string& name, Report& report) {
  const auto fail = [&](const std::string& message) { report.Add(kTokens, absl::StrCat(name, message)); };
  const auto& begins = micro_batch.part_rows();
  if (micro_batch.whole_backward() && (begins.empty() || mesh.tensors > 1))
    fail(absl::StrCat("whole_backward is set, but ",
                      begins.empty() ? "it has no part_rows" : "tensor ranks divide its tokens"));
  if (begins.empty()) {
    if (!micro_batch.part_chunks().empty()) fail("part_chunks is set, but it has no part_rows");
    return;
  }
  if (mesh.experts == 1) return fail("part_rows is set, but parts are of ranks that divide experts");
  if (begins.size() < 3 || begins[0] != 0)
    return fail(absl::StrCat("part_rows has ", begins.size(), " entries and begins with ", begins[0],
                             "; it has one more than there are parts, of which there are two or more, and ",
                             "begins with 0"));
  const size_t rows = RowsOf(index.batch(), index.plan(), micro_batch).size();
  if (begins[begins.size() - 1] != rows)
    return fail(absl::StrCat("part_rows ends with ", begins[begins.size() - 1], ", the micro-batch has ",
                             rows, " rows"));
  if (!micro_batch.part_chunks().empty()) return CheckCutRows(index, micro_batch, fail);
  for (int part = 0; part + 1 < begins.size(); ++part) {
    if (begins[part] < begins[part + 1]) continue;
    return fail(absl::StrCat("part_rows goes from ", begins[part], " to ", begins[part + 1],
                             "; no part is without a row"));
  }
}

}  // namespace

void CheckParts(const PlanIndex& index, Report& report) {
  for (int replica = 0; replica < index.replicas() && !index.stopped(); ++replica)
    for (int m = 0; m < index.MicroBatches(replica); ++m)
      CheckParts(index, index.MeshOf(replica), index.plan().replicas(replica).micro_batches(m),
                 absl::StrCat("replica ", replica, ", micro-batch ", m, ": "), report);
}

}  // namespace penstock::core::verify
