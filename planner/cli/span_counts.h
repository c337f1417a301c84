// Over how many context ranks the samples of a plan are divided, for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/v1/plan.pb.h"

namespace penstock::cli {

// So many samples that are divided over so many context ranks.
struct SpanCount {
  uint32_t ranks = 1;
  uint64_t samples = 0;
};

// Ascending in `ranks`. Empty where the plan has one context rank. A row's samples count with its span.
std::vector<SpanCount> CountSpans(const v1::Plan& plan);

// "150 x 1, 4 x 4, 2 x 32": so many samples over so many context ranks.
std::string SpanText(const std::vector<SpanCount>& spans);

}  // namespace penstock::cli
