// Micro-batches to try a cost profile on that it was not fitted to. Without LibTorch; pure.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/program/program.h"

namespace penstock::worker {

// Of lengths, numbers of rows and mixes of samples that MeasuredShapes has none of, of at most `most_tokens`:
// rectangles of 2, 3 and 7 rows, and packed samples of which many are short and few long, as in real data. By
// computed tokens, ascending. T5: sources and targets of different lengths. The same on every machine.
std::vector<MicroBatch> HeldOutShapes(const ModelConfig& config, int64_t most_tokens);

// The same and single rows, the long ones of which are divided over `contexts` ranks or half of them; by
// tokens that MeasuredContext has, ascending. Decoder-only models.
std::vector<MicroBatch> HeldOutShares(const ModelConfig& config, int contexts, int64_t most_tokens);

}  // namespace penstock::worker
