#include "planner/core/cost/weights_beside.h"

#include <algorithm>
#include <cmath>

namespace penstock::core {
namespace {

// Of the first ones of experts, rounded down.
int64_t FirstNs(const LayerProducts& products, int64_t first) {
  return static_cast<int64_t>(std::floor(products.experts_ns * static_cast<double>(first) /
                                         static_cast<double>(products.of_experts)));
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
  // Products that last no longer than an exchange.
  const double lasting = std::floor(static_cast<double>(exchange_ns) *
                                    static_cast<double>(products.of_experts) / products.experts_ns);
  const auto most = static_cast<int64_t>(std::min(lasting, static_cast<double>(products.of_experts)));
  WeightsBeside beside;
  beside.overlap = overlap;
  beside.return_products = static_cast<int32_t>(most);
  beside.arrival_products = static_cast<int32_t>(std::min(most, products.of_experts - most));
  beside.return_ns = FirstNs(products, most);
  beside.arrival_ns = FirstNs(products, most + beside.arrival_products) - beside.return_ns;
  // Behind those of all experts, where there is time for them.
  const int64_t with_others = static_cast<int64_t>(std::floor(products.ns)) - beside.return_ns;
  if (most + beside.arrival_products < products.of_experts || with_others > exchange_ns) return beside;
  beside.arrival_others = true;
  beside.arrival_ns = with_others;
  return beside;
}

}  // namespace penstock::core
