#include "tests/system/equivalence/cut_plan.h"

#include <algorithm>
#include <cstdint>

namespace penstock::testing {
namespace {

constexpr uint32_t kMostParts = 4;

uint32_t RowsIn(const v1::MicroBatch& micro_batch) {
  return micro_batch.layout() == v1::LAYOUT_PACKED ? static_cast<uint32_t>(micro_batch.samples_size())
                                                   : micro_batch.rows();
}

// The last part has about half of the rows.
void Cut(uint32_t parts, v1::MicroBatch& micro_batch) {
  uint32_t left = RowsIn(micro_batch);
  uint32_t end = 0;
  micro_batch.add_part_rows(end);
  for (; parts > 0; --parts) {
    const uint32_t rows = parts == 1 ? left : std::max(1U, left / (2 * parts - 2));
    micro_batch.add_part_rows(end += rows);
    left -= rows;
  }
}

}  // namespace

void CutIntoParts(v1::Plan& plan) {
  uint32_t turn = 0;
  for (v1::Replica& replica : *plan.mutable_replicas()) {
    for (v1::MicroBatch& micro_batch : *replica.mutable_micro_batches())
      Cut(std::min(RowsIn(micro_batch), 1 + turn++ % kMostParts), micro_batch);
  }
  for (v1::Program& program : *plan.mutable_programs()) {
    for (v1::Instruction& instruction : *program.mutable_instructions()) {
      if (!instruction.has_exchange()) continue;
      v1::PassExchange& exchange = *instruction.mutable_exchange();
      exchange.clear_products_beside_return();
      exchange.clear_products_beside_arrival();
      exchange.clear_others_beside_arrival();
    }
  }
}

}  // namespace penstock::testing
