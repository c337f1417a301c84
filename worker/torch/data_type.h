// Number formats of the program as LibTorch names them.
#pragma once

#include <c10/core/ScalarType.h>

#include "worker/program/program.h"

namespace penstock::worker {

c10::ScalarType ToScalarType(DataType type);

// What gradients and optimizer state are kept in: float64 for float64, otherwise float32.
c10::ScalarType AccumulationType(c10::ScalarType type);

}  // namespace penstock::worker
