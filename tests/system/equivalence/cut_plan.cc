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

// The chunk of a row that a part may begin with; 0: the row is not divided.
uint32_t ChunkOf(const v1::MicroBatch& micro_batch, uint32_t row, uint32_t turn) {
  const auto at = static_cast<int>(row);
  const uint32_t ranks = at < micro_batch.span_ranks_size() ? micro_batch.span_ranks(at) : 1;
  return ranks == 1 ? 0 : 1 + turn % (2 * ranks - 1);
}

// Parts that begin with divided rows begin inside of them, and one more inside of the first row.
void CutRows(uint32_t turn, v1::MicroBatch& micro_batch) {
  const v1::MicroBatch whole_rows = micro_batch;
  micro_batch.clear_part_rows();
  bool cut = false;
  const auto begin = [&](uint32_t row, uint32_t chunk) {
    micro_batch.add_part_rows(row);
    micro_batch.add_part_chunks(chunk);
    cut = cut || chunk > 0;
  };
  for (int part = 0; part < whole_rows.part_rows_size(); ++part) {
    const uint32_t row = whole_rows.part_rows(part);
    const bool last = part + 1 == whole_rows.part_rows_size();
    begin(row, part == 0 || last ? 0 : ChunkOf(micro_batch, row, turn + static_cast<uint32_t>(part)));
    if (const uint32_t chunk = ChunkOf(micro_batch, 0, turn); part == 0 && chunk > 0) begin(0, chunk);
  }
  if (!cut) micro_batch.clear_part_chunks();
}

}  // namespace

void CutIntoParts(v1::Plan& plan, uint32_t turn) {
  const bool may_go_back_whole = plan.mesh().tensor() <= 1;
  for (v1::Replica& replica : *plan.mutable_replicas()) {
    for (v1::MicroBatch& micro_batch : *replica.mutable_micro_batches()) {
      Cut(std::min(RowsIn(micro_batch), 1 + turn % kMostParts), micro_batch);
      // Of each number of parts in every other of its turns.
      micro_batch.set_whole_backward(may_go_back_whole && (turn + turn / kMostParts) % 2 == 1);
      if (micro_batch.whole_backward() && plan.model().expert_capacity_factor() == 0)
        CutRows(turn, micro_batch);
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
