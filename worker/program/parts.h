// The parts of a micro-batch (proto/penstock/v1/execution.md, section 7): runs of consecutive rows, or of
// chunks of divided rows, whose passes take turns, so that the rows that one part sends to experts travel
// while the next is computed.
//
//   for (size_t part = 0; part < PartsOf(shape); ++part) ... PartOf(shape, part) ...
//
// The tokens of a context rank lie row by row: those of a part follow those of the parts before it. Tensor
// ranks divide each part's tokens (worker/comm/shard.h), so that theirs lie part by part, too.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "worker/program/group_place.h"
#include "worker/program/program.h"

namespace penstock::worker {

// 0: the micro-batch has no parts.
size_t PartsOf(const MicroBatch& shape);

// Whether backward passes go in them, too.
inline bool HasBackwardInParts(const MicroBatch& shape) {
  return PartsOf(shape) > 0 && !shape.whole_backward;
}

// That the parts are all rows in their order, none of them empty, and that ranks divide experts where there
// are some; that backward passes are whole behind parts alone, and where tensor ranks divide no tokens, which
// they do part by part; that rows are cut where ranks divide them, backward passes are whole and no expert
// has a capacity, which all of a sample decides. Wants spans that are in order. Possible errors:
// INVALID_ARGUMENT (names part_rows, part_chunks or whole_backward).
absl::Status CheckParts(const MicroBatch& shape, const ModelConfig& config, const GroupPlace& place);

// Whether the part begins, or ends, inside of a row.
bool BeginsInRow(const MicroBatch& shape, size_t part);
inline bool EndsInRow(const MicroBatch& shape, size_t part) { return BeginsInRow(shape, part + 1); }

// A part as a micro-batch without parts. Wants a shape that is in order. Rows of a rectangle stay as long as
// they are, and so do rows that are cut, with all their samples (MicroBatch::first_chunk, end_chunk). Nothing
// says what is recomputed.
MicroBatch PartOf(const MicroBatch& shape, size_t part);

// The first sample of a part among those of the micro-batch.
size_t FirstSampleOf(const MicroBatch& shape, size_t part);

}  // namespace penstock::worker
