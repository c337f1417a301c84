#include "planner/cli/expert_layers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace penstock::cli {
namespace {

// Named to a person.
constexpr size_t kWorst = 3;

std::optional<LayerLoads> LoadsOf(const v1::IterationSummary& iteration,
                                  double (v1::ExpertLayerLoad::*ratio)() const) {
  LayerLoads loads;
  for (const v1::ExpertLayerLoad& layer : iteration.expert_layers()) {
    if ((layer.*ratio)() <= 0) continue;
    loads.layers.push_back({layer.layer(), (layer.*ratio)()});
    loads.mean += loads.layers.back().load;
  }
  if (loads.layers.empty()) return std::nullopt;
  loads.mean /= static_cast<double>(loads.layers.size());
  std::stable_sort(loads.layers.begin(), loads.layers.end(),
                   [](const LayerLoad& left, const LayerLoad& right) { return left.load > right.load; });
  return loads;
}

}  // namespace

std::optional<LayerLoads> RankLoads(const v1::IterationSummary& iteration) {
  return LoadsOf(iteration, &v1::ExpertLayerLoad::fullest_rank);
}

std::optional<LayerLoads> ExpertLoads(const v1::IterationSummary& iteration) {
  return LoadsOf(iteration, &v1::ExpertLayerLoad::fullest_expert);
}

std::string LayerLoadsText(const LayerLoads& loads) {
  std::vector<std::string> worst;
  for (size_t i = 0; i < std::min(kWorst, loads.layers.size()); ++i)
    worst.push_back(absl::StrFormat("layer %d (%.2f)", loads.layers[i].layer, loads.layers[i].load));
  const std::string last = worst.back();
  worst.pop_back();
  return absl::StrFormat("%.2f in the mean of %d layers, most in %s%s%s", loads.mean, loads.layers.size(),
                         absl::StrJoin(worst, ", "), worst.empty() ? "" : " and ", last);
}

}  // namespace penstock::cli
