#include "planner/core/cost/loaded_experts.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace penstock::core {
namespace {

void MultiplyTokens(double by, LayerTime* time) { time->target_token_ns *= by; }

void MultiplyTable(double by, std::vector<double>* table) {
  for (double& value : *table) value *= by;
}

// Times of tables are those of all tokens: what attention has of them is multiplied, too.
void MultiplyTimes(double by, LayerProfile* layer) {
  MultiplyTokens(by, &layer->forward);
  if (layer->backward_forms.has_value()) {
    MultiplyTokens(by, &layer->backward_forms->input);
    MultiplyTokens(by, &layer->backward_forms->weight);
  }
  for (TensorCost& cost : layer->tensor) MultiplyTokens(by, &cost.forward);
  MultiplyTable(by, &layer->forward_table_ns);
  for (std::vector<double>& table : layer->backward_table_ns) MultiplyTable(by, &table);
}

// A layer that runs again keeps its input alone, which is as large as ever.
void AddKept(double token_bytes, LayerProfile* layer) {
  for (const RecomputeLevel level : {kKeepAll, kKeepSelective})
    layer->stored[level].target_token_bytes += token_bytes;
  layer->peak.target_token_bytes += token_bytes;
  if (layer->split_backward_peak.has_value()) layer->split_backward_peak->target_token_bytes += token_bytes;
}

}  // namespace

double LoadFactor(double expert_share, double fullest) { return 1 + expert_share * (fullest - 1); }

Profile LoadedProfile(Profile profile, const Job& job) {
  const std::vector<ExpertLoad> loads = std::exchange(profile.expert_loads, {});
  const int32_t ranks = job.topology.shape().group.expert;
  const auto load = std::find_if(loads.begin(), loads.end(),
                                 [&](const ExpertLoad& candidate) { return candidate.ranks == ranks; });
  if (load == loads.end() || job.experts_per_token == 0) return profile;
  profile.fullest_experts = load->fullest;
  LayerProfile& layer = profile.layers[kDecoder];
  MultiplyTimes(LoadFactor(job.expert_product_share, load->fullest), &layer);
  AddKept((load->fullest - 1) * static_cast<double>(job.expert_kept_bytes), &layer);
  return profile;
}

}  // namespace penstock::core
