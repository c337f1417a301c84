// The micro-batches that a profile is measured with. Without LibTorch; pure.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/program/program.h"

namespace penstock::worker {

// Samples of these lengths, all of whose tokens are learnt.
MicroBatch PaddedShape(int64_t rows, int64_t length);
MicroBatch PackedShape(const std::vector<int64_t>& lengths);

// Sum of the squares of the row lengths.
double SquaresOf(const MicroBatch& shape);

// Rectangles of 1, 4 and 16 rows and packed samples of mixed lengths, each from 16 tokens up to
// `max_sequence_length`, of at most `most_tokens`; by computed tokens, ascending.
std::vector<MicroBatch> MeasuredShapes(int64_t max_sequence_length, int64_t most_tokens);

}  // namespace penstock::worker
