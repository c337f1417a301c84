// What the checker knows of adapters: which a plan may have, and how many bytes are reduced of them.
#include "planner/core/verify/adapters.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

// As job.proto, Adapters.
constexpr uint32_t kMostAdapterRank = 4096;

uint64_t ElementBytesOf(const v1::ModelSpec& model) {
  if (model.dtype() == v1::DATA_TYPE_FLOAT64) return 8;
  return model.dtype() == v1::DATA_TYPE_BFLOAT16 ? 2 : 4;
}

// Inputs and outputs that one tensor rank has of a layer, together, in the rows and columns of its adapter.
uint64_t WidthOf(const v1::ModelSpec& model, int layer, uint64_t tensors) {
  const uint64_t hidden = model.hidden();
  const uint64_t inner = model.attention_inner() > 0 ? model.attention_inner() : model.hidden();
  const uint64_t shared = model.key_value_heads() > 0 ? model.key_value_heads() : model.heads();
  switch (layer) {
    case v1::LINEAR_LAYER_QUERY:
    case v1::LINEAR_LAYER_OUTPUT:
      return hidden + inner / tensors;
    case v1::LINEAR_LAYER_KEY:
    case v1::LINEAR_LAYER_VALUE:
      return hidden + (shared + tensors - 1) / tensors * (inner / model.heads());
    default:
      return hidden + model.ffn() / tensors;
  }
}

bool IsTwiceInADecoder(int layer) {
  return layer != v1::LINEAR_LAYER_GATE && layer != v1::LINEAR_LAYER_UP && layer != v1::LINEAR_LAYER_DOWN;
}

uint64_t LayerBytesOf(const v1::Plan& plan, bool cross) {
  const v1::ModelSpec& model = plan.model();
  uint64_t widths = 0;
  for (const int layer : model.adapters().targets()) {
    widths += (cross && IsTwiceInADecoder(layer) ? 2 : 1) * WidthOf(model, layer, TensorRanks(plan.mesh()));
  }
  return model.adapters().rank() * widths * ElementBytesOf(model);
}

}  // namespace

void CheckAdapterFields(const v1::Plan& plan, Report& report) {
  const v1::ModelSpec& model = plan.model();
  if (!model.has_adapters()) return;
  const v1::Adapters& adapters = model.adapters();
  const bool gated = model.feed_forward() == v1::FEED_FORWARD_GATED_GELU ||
                     model.feed_forward() == v1::FEED_FORWARD_GATED_SILU;
  std::set<int> targets;
  for (const int layer : adapters.targets()) {
    const bool known = layer >= v1::LINEAR_LAYER_QUERY && layer <= v1::LINEAR_LAYER_DOWN;
    if (!known || !targets.insert(layer).second || (layer == v1::LINEAR_LAYER_GATE && !gated))
      report.Add(kStructure, absl::StrCat("model.adapters.targets has ", layer,
                                          ", which is unknown, there twice, or not in the model"));
  }
  if (adapters.rank() == 0 || adapters.rank() > kMostAdapterRank || targets.empty() ||
      !std::isfinite(adapters.alpha()) || adapters.alpha() < 0)
    report.Add(kStructure, absl::StrCat("model.adapters has rank ", adapters.rank(), ", alpha ",
                                        adapters.alpha(), " and ", targets.size(), " targets"));
  if (model.experts() > 0) report.Add(kStructure, "model.adapters is set, which no model with experts has");
  if (plan.options().parameter_shares())
    report.Add(kStructure, "model.adapters is set, with options.parameter_shares");
}

uint64_t AdapterBytes(const v1::Plan& plan, uint32_t stage) {
  const v1::ModelSpec& model = plan.model();
  const bool t5 = model.architecture() == v1::ARCHITECTURE_T5;
  uint64_t first = 0;
  for (uint32_t i = 0; i < stage; ++i) first += plan.layers_per_stage(static_cast<int>(i));
  const uint64_t layers = plan.layers_per_stage(static_cast<int>(stage));
  const uint64_t encoders =
      t5 && model.encoder_layers() > first ? std::min<uint64_t>(layers, model.encoder_layers() - first) : 0;
  return encoders * LayerBytesOf(plan, /*cross=*/false) +
         (layers - encoders) * LayerBytesOf(plan, /*cross=*/t5);
}

}  // namespace penstock::core::verify
