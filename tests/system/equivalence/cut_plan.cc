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

void CutIntoParts(v1::Plan& plan, uint32_t turn) {
  const bool may_go_back_whole = plan.mesh().tensor() <= 1;
  for (v1::Replica& replica : *plan.mutable_replicas()) {
    for (v1::MicroBatch& micro_batch : *replica.mutable_micro_batches()) {
      Cut(std::min(RowsIn(micro_batch), 1 + turn % kMostParts), micro_batch);
      // Of each number of parts in every other of its turns.
      micro_batch.set_whole_backward(may_go_back_whole && (turn + turn / kMostParts) % 2 == 1);
      ++turn;
    }
  }
  for (v1::Program& program : *plan.mutable_programs()) {
    const v1::Replica& replica = plan.replicas(static_cast<int>(program.replica()));
    for (v1::Instruction& instruction : *program.mutable_instructions()) {
      if (!instruction.has_exchange() ||
          replica.micro_batches(static_cast<int>(instruction.micro_batch())).whole_backward())
        continue;
      v1::PassExchange& exchange = *instruction.mutable_exchange();
      exchange.clear_products_beside_return();
      exchange.clear_products_beside_arrival();
      exchange.clear_others_beside_arrival();
    }
  }
}

}  // namespace penstock::testing
