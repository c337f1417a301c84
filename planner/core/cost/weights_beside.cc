#include "planner/core/cost/weights_beside.h"

#include <algorithm>
#include <cmath>

namespace penstock::core {
namespace {

// Of the layer's first experts, rounded down.
int64_t ExpertsNs(const LayerProducts& products, int64_t experts) {
  return static_cast<int64_t>(
      std::floor(products.experts_ns * static_cast<double>(experts) / static_cast<double>(products.experts)));
}

// With those of so many experts beside the way back. `lasting`: experts whose products last as long as an
// exchange.
WeightsBeside WithOnReturn(const LayerProducts& products, int64_t experts, double lasting) {
  WeightsBeside beside;
  beside.return_experts = static_cast<int32_t>(experts);
  // The experts that are left, and where they do not last long enough the other weights.
  const int64_t left = products.experts - experts;
  beside.arrival_experts = static_cast<int32_t>(std::min(lasting, static_cast<double>(left)));
  beside.arrival_others = lasting > static_cast<double>(left);
  beside.return_ns = ExpertsNs(products, experts);
  const int64_t through = beside.arrival_others ? static_cast<int64_t>(std::floor(products.ns))
                                                : ExpertsNs(products, experts + beside.arrival_experts);
  beside.arrival_ns = through - beside.return_ns;
  return beside;
}

// Of the two exchanges of a layer that has one below.
int64_t ExposedNs(const WeightsBeside& beside, int64_t exchange_ns) {
  return std::max<int64_t>(0, exchange_ns - beside.return_ns) +
         std::max<int64_t>(0, exchange_ns - beside.arrival_ns);
}

}  // namespace

int64_t WeightsBeside::HiddenNs(int64_t layers, int64_t kept, int64_t exchange_ns) const {
  // The topmost layer has none above it.
  const int64_t arrivals = std::max<int64_t>(0, kept - 1);
  const int64_t beside =
      layers * std::min(exchange_ns, return_ns) + arrivals * std::min(exchange_ns, arrival_ns);
  return static_cast<int64_t>(std::floor(overlap * static_cast<double>(beside)));
}

WeightsBeside PutBeside(const LayerProducts& products, int64_t exchange_ns, double overlap) {
  if (overlap <= 0 || products.experts_ns <= 0) return {};
  const auto experts = static_cast<double>(products.experts);
  const double lasting =
      std::max(1.0, std::ceil(static_cast<double>(exchange_ns) * experts / products.experts_ns));
  const auto enough = static_cast<int64_t>(std::min(lasting, experts));
  WeightsBeside beside = WithOnReturn(products, enough, lasting);
  // One less may leave more for the way to the experts than the way back loses.
  const WeightsBeside one_less = WithOnReturn(products, enough - 1, lasting);
  if (ExposedNs(one_less, exchange_ns) < ExposedNs(beside, exchange_ns)) beside = one_less;
  beside.overlap = overlap;
  return beside;
}

}  // namespace penstock::core
