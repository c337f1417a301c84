// Tables of efficiency of a cost profile (v1::LayerTime.efficiency), for people.
#pragma once

#include <string>
#include <vector>

#include "penstock/v1/cost_profile.pb.h"

namespace penstock::cli {

struct EfficiencyTable {
  // "layer, forward", "layer, gradients of weights", "embedding"
  std::string of;
  std::vector<v1::EfficiencyPoint> points;
};

// Of all forms that have one.
std::vector<EfficiencyTable> EfficiencyTablesOf(const v1::CostProfile& profile);

// A line for each: "efficiency    layer, forward: 1.4 at 126 tokens, 1 at 503". Empty: there are none.
std::string EfficiencyLines(const v1::CostProfile& profile);

}  // namespace penstock::cli
