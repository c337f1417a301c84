// Whole numbers divided, and rounded up.
#pragma once

#include <cstdint>

namespace penstock::core {

// `value` at least 0, `by` at least 1.
inline int64_t CeilDivide(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace penstock::core
