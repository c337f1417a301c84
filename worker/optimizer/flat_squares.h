// The sum of squares of many numbers, for the norm of gradients.
#pragma once

#include <ATen/core/Tensor.h>

namespace penstock::worker {

// Of a flat, contiguous tensor of float32 or float64: a float64 scalar on its device. On the CPU it is one
// pass over memory, and the sum has the same bits with any number of threads.
at::Tensor FlatSumOfSquares(const at::Tensor& flat);

}  // namespace penstock::worker
