// Rule 7: the parts that passes go through in turn hold every row of a micro-batch once, and there are some
// only where ranks divide experts (execution.md, section 7).
#include <string>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

void CheckParts(const PlanIndex& index, const ReplicaMesh& mesh, const v1::MicroBatch& micro_batch,
                const std::string& name, Report& report) {
  const auto fail = [&](const std::string& message) { report.Add(kTokens, absl::StrCat(name, message)); };
  const auto& begins = micro_batch.part_rows();
  if (micro_batch.whole_backward() && (begins.empty() || mesh.tensors > 1 || index.plan().forward_only()))
    fail(absl::StrCat("whole_backward is set, but ", begins.empty()     ? "it has no part_rows"
                                                     : mesh.tensors > 1 ? "tensor ranks divide its tokens"
                                                                        : "there are no backward passes"));
  if (begins.empty()) return;
  if (mesh.experts == 1) return fail("part_rows is set, but parts are of ranks that divide experts");
  if (begins.size() < 3 || begins[0] != 0)
    return fail(absl::StrCat("part_rows has ", begins.size(), " entries and begins with ", begins[0],
                             "; it has one more than there are parts, of which there are two or more, and ",
                             "begins with 0"));
  for (int part = 0; part + 1 < begins.size(); ++part) {
    if (begins[part] < begins[part + 1]) continue;
    return fail(absl::StrCat("part_rows goes from ", begins[part], " to ", begins[part + 1],
                             "; no part is without a row"));
  }
  const size_t rows = RowsOf(index.batch(), index.plan(), micro_batch).size();
  if (begins[begins.size() - 1] != rows)
    fail(absl::StrCat("part_rows ends with ", begins[begins.size() - 1], ", the micro-batch has ", rows,
                      " rows"));
}

}  // namespace

void CheckParts(const PlanIndex& index, Report& report) {
  for (int replica = 0; replica < index.replicas() && !index.stopped(); ++replica)
    for (int m = 0; m < index.MicroBatches(replica); ++m)
      CheckParts(index, index.MeshOf(replica), index.plan().replicas(replica).micro_batches(m),
                 absl::StrCat("replica ", replica, ", micro-batch ", m, ": "), report);
}

}  // namespace penstock::core::verify
