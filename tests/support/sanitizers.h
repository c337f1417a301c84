// What a test does less of where a sanitizer looks on, under which everything takes many times as long.
#pragma once

#include "common/process/sanitized.h"

namespace penstock {

// How many random cases are tried: without a sanitizer `count`; with one a share of them, as it looks for
// wrong memory and not for wrong plans.
constexpr int Cases(int count) { return kSanitized ? count / 10 : count; }

}  // namespace penstock
