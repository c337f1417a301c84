// What tests of micro-batches in parts have in common.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/worker/model_testing.h"

namespace penstock::worker {

uint32_t RowsIn(const MicroBatch& shape);

// So many parts, of different sizes where there are rows enough.
std::vector<uint32_t> PartRows(uint32_t rows, uint32_t parts);

// Experts behind attention with windows in every other layer, which turns by another theta.
ModelConfig ExpertsWithWindows(DataType type);

const std::vector<TestPipeline::Options>& EveryKindOfPass();

std::string NameOfLayout(const ::testing::TestParamInfo<Layout>& info);

// Every combination with PENSTOCK_EQUIVALENCE=all in the environment. Else every `every`-th: neither five
// kinds of passes nor four numbers of parts nor four pairs of degrees share a divisor with the primes that
// tests take.
bool IsRun(size_t combination, size_t every);

}  // namespace penstock::worker
