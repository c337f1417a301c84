#include "planner/core/contract/check_group.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/mesh/mesh_ranks.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/limits.h"
#include "planner/core/contract/model_experts.h"
#include "planner/core/contract/model_heads.h"
#include "planner/core/contract/wrong_in_job.h"

namespace penstock::core {
namespace {

// Key-value heads that are fewer than the tensor ranks are repeated.
bool Divides(uint32_t tensor, const v1::ModelSpec& model) {
  const uint32_t shared = KeyValueHeads(model);
  return model.heads() % tensor == 0 && model.ffn() % tensor == 0 &&
         model.shared_expert_ffn() % tensor == 0 && DenseWidth(model) % tensor == 0 &&
         (shared % tensor == 0 || tensor % shared == 0);
}

// ", of the shared expert 64, of layers without experts 512"; nothing where the model has neither.
std::string OtherWidths(const v1::ModelSpec& model) {
  std::string widths;
  if (model.shared_expert_ffn() > 0)
    absl::StrAppend(&widths, ", of the shared expert ", model.shared_expert_ffn());
  if (model.dense_ffn() > 0) absl::StrAppend(&widths, ", of layers without experts ", model.dense_ffn());
  return widths;
}

absl::Status CheckTensor(uint32_t tensor, const v1::ModelSpec& model) {
  if (Divides(tensor, model)) return absl::OkStatus();
  uint32_t below = tensor;
  while (!Divides(below, model)) --below;
  const uint32_t most = std::min(model.heads(), kMostTensorRanks);
  uint32_t above = tensor;
  while (above <= most && !Divides(above, model)) ++above;
  return Wrong(
      "job.mesh.tensor",
      absl::StrCat(tensor, " tensor ranks cannot divide ", model.heads(), " heads, ", KeyValueHeads(model),
                   " key-value heads and a feed-forward width of ", model.ffn(), OtherWidths(model), "; use ",
                   below, above <= most ? absl::StrCat(" or ", above) : ""));
}

absl::Status CheckContext(uint32_t context) {
  if ((context & (context - 1)) == 0) return absl::OkStatus();
  uint32_t below = 1;
  while (2 * below < context) below *= 2;
  return Wrong("job.mesh.context",
               absl::StrCat(context, " is no power of two; use ", below, " or ", 2 * below));
}

absl::Status CheckExpert(const v1::Mesh& mesh, const v1::ModelSpec& model) {
  const uint32_t expert = ExpertRanks(mesh);
  const auto group = static_cast<uint32_t>(GroupRanks(mesh));
  const auto divides = [&](uint32_t degree) {
    return model.experts() % degree == 0 && degree % TensorRanks(mesh) == 0 && group % degree == 0;
  };
  if (model.experts() == 0)
    return Wrong("job.mesh.expert", absl::StrCat(expert, ", but the model has no experts; use 1"));
  if (divides(expert)) return absl::OkStatus();
  std::vector<uint32_t> degrees;
  for (uint32_t degree = 2; degree <= group; ++degree) {
    if (divides(degree)) degrees.push_back(degree);
  }
  return Wrong("job.mesh.expert",
               absl::StrCat(expert, " ranks cannot divide ", model.experts(), " experts of a stage group of ",
                            ContextRanks(mesh), " context x ", TensorRanks(mesh),
                            " tensor ranks: it divides both, and is a multiple of the tensor ranks; use ",
                            degrees.empty() ? "1" : absl::StrCat("1, ", absl::StrJoin(degrees, ", "))));
}

// "2, 4, 8"; "none".
std::string DegreesOf(const v1::LayerCost& layer) {
  std::vector<uint32_t> degrees;
  for (const v1::TensorCost& cost : layer.tensor()) {
    if (cost.expert() <= 1) degrees.push_back(cost.degree());
  }
  return degrees.empty() ? "none" : absl::StrJoin(degrees, ", ");
}

absl::Status CheckProfiled(uint32_t tensor, const v1::CostProfile& profile) {
  for (const v1::LayerCost& layer : profile.layers()) {
    const auto& costs = layer.tensor();
    const auto at_degree = [&](const v1::TensorCost& cost) {
      return cost.degree() == tensor && cost.expert() <= 1;
    };
    if (std::any_of(costs.begin(), costs.end(), at_degree)) continue;
    return Wrong(
        "job.mesh.tensor",
        absl::StrCat("the profile has no figures of layer '", layer.name(), "' for ", tensor,
                     " tensor ranks (layers.tensor; it has: ", DegreesOf(layer),
                     "); profile the model at that degree (penstock-worker profile --tensor ", tensor, ")"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckGroupOfModel(const v1::Mesh& mesh, const v1::ModelSpec& model) {
  if (TensorRanks(mesh) > 1) PENSTOCK_RETURN_IF_ERROR(CheckTensor(TensorRanks(mesh), model));
  if (ContextRanks(mesh) > 1) PENSTOCK_RETURN_IF_ERROR(CheckContext(ContextRanks(mesh)));
  if (ExpertRanks(mesh) > 1) PENSTOCK_RETURN_IF_ERROR(CheckExpert(mesh, model));
  if (ContextRanks(mesh) == 1) return absl::OkStatus();
  if (model.architecture() != v1::ARCHITECTURE_T5) return absl::OkStatus();
  return Wrong("job.mesh.context",
               "a T5 cannot be divided over context ranks; use 1, and more tensor ranks or stages");
}

absl::Status CheckGroup(const v1::JobSpec& job) {
  PENSTOCK_RETURN_IF_ERROR(CheckGroupOfModel(job.mesh(), job.model()));
  const uint32_t tensor = TensorRanks(job.mesh());
  if (tensor > 1) PENSTOCK_RETURN_IF_ERROR(CheckProfiled(tensor, job.profile()));
  if (ContextRanks(job.mesh()) == 1) return absl::OkStatus();
  for (const v1::LayerCost& layer : job.profile().layers()) {
    if (layer.has_forward()) continue;
    return Wrong("job.mesh.context",
                 absl::StrCat("layer '", layer.name(),
                              "' of the profile has no closed form (forward), which shares of "
                              "samples need; use a profile with one"));
  }
  return absl::OkStatus();
}

}  // namespace penstock::core
