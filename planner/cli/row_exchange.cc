#include "planner/cli/row_exchange.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "planner/cli/text_table.h"
#include "planner/cli/units.h"

namespace penstock::cli {

RowExchange RowExchangeOf(const v1::Plan& plan) {
  int64_t all_ns = 0, exposed_ns = 0;
  for (const v1::Program& program : plan.programs()) {
    for (const v1::Instruction& instruction : program.instructions()) {
      all_ns += instruction.exchange().expert_ns();
      exposed_ns += instruction.exchange().expert_exposed_ns();
    }
  }
  RowExchange rows;
  if (plan.programs_size() > 0) {
    rows.ms = Milliseconds(all_ns) / plan.programs_size();
    rows.exposed_ms = Milliseconds(exposed_ns) / plan.programs_size();
  }
  for (const v1::Replica& replica : plan.replicas()) {
    for (const v1::MicroBatch& micro_batch : replica.micro_batches()) {
      if (!micro_batch.part_rows().empty()) ++rows.in_parts;
      if (micro_batch.whole_backward()) ++rows.forward_alone;
      if (!micro_batch.part_chunks().empty()) ++rows.cut_rows;
    }
  }
  return rows;
}

std::string RowExchangeText(const RowExchange& rows, int micro_batches) {
  return absl::StrCat(
      Fixed(rows.ms, 1), " ms a rank, ", Fixed(rows.exposed_ms, 1), " ms of it waited for; ", rows.in_parts,
      " of ", micro_batches, " micro-batches in parts",
      rows.forward_alone > 0 ? absl::StrCat(", ", rows.forward_alone, " of them forward alone")
                             : std::string(),
      rows.cut_rows > 0 ? absl::StrCat(" (", rows.cut_rows, " inside of samples)") : std::string());
}

}  // namespace penstock::cli
