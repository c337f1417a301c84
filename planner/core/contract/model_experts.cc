#include "planner/core/contract/model_experts.h"

#include <algorithm>

#include "planner/core/contract/adapters.h"
#include "planner/core/contract/model_heads.h"
#include "planner/core/contract/wrong_in_job.h"

namespace penstock::core {
namespace {

int64_t MatricesOfExpert(const v1::ModelSpec& model) { return IsGated(model) ? 3 : 2; }

// Of all experts of a layer.
int64_t ExpertParameterBytes(const v1::ModelSpec& model, int64_t bytes_per_element) {
  return int64_t{model.experts()} * MatricesOfExpert(model) * model.hidden() * model.ffn() *
         bytes_per_element;
}

// Of the multiplications that the gradients of a layer's weights take, those of experts (execution.md,
// section 7).
double ExpertProductShare(const v1::ModelSpec& model) {
  if (model.experts() == 0) return 0;
  const int64_t of_experts = int64_t{model.experts_per_token()} * MatricesOfExpert(model) * model.ffn();
  const int64_t inner = model.attention_inner() > 0 ? model.attention_inner() : model.hidden();
  const int64_t shared = MatricesOfExpert(model) * model.shared_expert_ffn();
  const int64_t of_others = 2 * inner + 2 * int64_t{KeyValueHeads(model)} * HeadWidth(model) +
                            model.experts() + shared + (model.gated_shared_expert() ? 1 : 0);
  return static_cast<double>(of_experts) / static_cast<double>(of_experts + of_others);
}

// Of the rows of one token: what goes into an expert, and what each of its matrices makes or reads inside.
int64_t ExpertKeptBytes(const v1::ModelSpec& model, int64_t bytes_per_element) {
  return int64_t{model.experts_per_token()} * (model.hidden() + MatricesOfExpert(model) * model.ffn()) *
         bytes_per_element;
}

}  // namespace

LayerOrder LayerOrderOf(const v1::ModelSpec& model) {
  LayerOrder order = {.encoder_layers = model.encoder_layers()};
  for (const uint32_t layer : model.dense_layers()) order.dense.push_back(static_cast<int32_t>(layer) - 1);
  return order;
}

void ReadExperts(const v1::ModelSpec& model, Job* job) {
  job->experts_per_token = model.experts_per_token();
  job->expert_parameter_bytes = ExpertParameterBytes(model, job->bytes_per_element);
  job->expert_products = int64_t{model.experts()} * MatricesOfExpert(model);
  job->expert_product_share = ExpertProductShare(model);
  job->experts_have_capacity = model.expert_capacity_factor() > 0;
  job->expert_kept_bytes = ExpertKeptBytes(model, job->bytes_per_element);
}

absl::Status CheckProfiledLayers(const v1::JobSpec& job) {
  const auto& layers = job.profile().layers();
  const bool profiled = std::any_of(layers.begin(), layers.end(),
                                    [](const v1::LayerCost& layer) { return layer.name() == "dense"; });
  if (profiled == (job.model().dense_layers_size() > 0)) return absl::OkStatus();
  if (profiled)
    return Wrong("job.profile.layers",
                 "'dense' is of layers without experts, which job.model.dense_layers does not name; use the "
                 "profile of this model");
  return Wrong(
      "job.profile.layers",
      "'dense' is missing, for the layers without experts (job.model.dense_layers); profile this model "
      "with penstock-worker profile, or estimate it with penstock profile analytic");
}

}  // namespace penstock::core
