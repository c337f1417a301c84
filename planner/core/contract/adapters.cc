#include "planner/core/contract/adapters.h"

#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "planner/core/contract/model_heads.h"
#include "planner/core/contract/wrong_in_job.h"

namespace penstock::core {
namespace {

constexpr uint32_t kMostRank = 4096;

// Of a linear layer with an adapter: A has [rank, inputs], B [outputs, rank].
struct AdaptedLinear {
  int64_t inputs = 0;
  int64_t outputs = 0;
  // What tensor ranks divide; else the inputs.
  bool divides_outputs = false;
  // Outputs are so many units, such as heads, which stay whole.
  int64_t units = 1;
};

absl::Status CheckTargets(const v1::ModelSpec& model) {
  constexpr char kField[] = "job.model.adapters.targets";
  const v1::Adapters& adapters = model.adapters();
  if (adapters.targets().empty()) return Wrong(kField, "there are none; name at least one linear layer");
  std::set<int> seen;
  for (const int target : adapters.targets()) {
    if (!v1::LinearLayer_IsValid(target) || target == v1::LINEAR_LAYER_UNSPECIFIED)
      return Wrong(kField,
                   absl::StrCat(target, " is unknown; use QUERY, KEY, VALUE, OUTPUT, GATE, UP or DOWN"));
    if (!seen.insert(target).second)
      return Wrong(kField, absl::StrCat(v1::LinearLayer_Name(static_cast<v1::LinearLayer>(target)),
                                        " is there twice; name each once"));
  }
  if (seen.contains(v1::LINEAR_LAYER_GATE) && !IsGated(model))
    return Wrong(kField, "the feed-forward part of the model has no gate; leave GATE out");
  return absl::OkStatus();
}

AdaptedLinear ShapeOf(const v1::ModelSpec& model, v1::LinearLayer layer) {
  const int64_t hidden = model.hidden();
  const int64_t ffn = model.ffn();
  const int64_t queries = int64_t{model.heads()} * HeadWidth(model);
  const int64_t keys = int64_t{KeyValueHeads(model)} * HeadWidth(model);
  switch (layer) {
    case v1::LINEAR_LAYER_QUERY:
      return {hidden, queries, true, model.heads()};
    case v1::LINEAR_LAYER_KEY:
    case v1::LINEAR_LAYER_VALUE:
      return {hidden, keys, true, KeyValueHeads(model)};
    case v1::LINEAR_LAYER_OUTPUT:
      return {queries, hidden, false, 1};
    case v1::LINEAR_LAYER_DOWN:
      return {ffn, hidden, false, 1};
    default:
      return {hidden, ffn, true, ffn};
  }
}

bool IsOfAttention(v1::LinearLayer layer) {
  return layer == v1::LINEAR_LAYER_QUERY || layer == v1::LINEAR_LAYER_KEY ||
         layer == v1::LINEAR_LAYER_VALUE || layer == v1::LINEAR_LAYER_OUTPUT;
}

// Rows of A and B together, of one tensor rank.
int64_t OwnWidths(const AdaptedLinear& linear, int64_t tensors) {
  if (!linear.divides_outputs) return linear.inputs / tensors + linear.outputs;
  const int64_t own_units = (linear.units + tensors - 1) / tensors;
  return linear.inputs + own_units * (linear.outputs / linear.units);
}

}  // namespace

bool IsGated(const v1::ModelSpec& model) {
  return model.feed_forward() == v1::FEED_FORWARD_GATED_GELU ||
         model.feed_forward() == v1::FEED_FORWARD_GATED_SILU;
}

absl::Status CheckAdapters(const v1::ModelSpec& model) {
  if (!model.has_adapters()) return absl::OkStatus();
  const v1::Adapters& adapters = model.adapters();
  if (model.experts() > 0)
    return Wrong("job.model.adapters", "a model with experts has none; leave them, and train all of it");
  if (adapters.rank() == 0 || adapters.rank() > kMostRank)
    return Wrong("job.model.adapters.rank", absl::StrCat(adapters.rank(), "; use 1 to ", kMostRank));
  if (!std::isfinite(adapters.alpha()) || adapters.alpha() < 0)
    return Wrong("job.model.adapters.alpha",
                 absl::StrCat(adapters.alpha(), "; must be finite and above 0, or 0 for the rank"));
  return CheckTargets(model);
}

int64_t AdapterElements(const v1::ModelSpec& model, bool cross, uint32_t tensors) {
  int64_t widths = 0;
  for (const int target : model.adapters().targets()) {
    const auto layer = static_cast<v1::LinearLayer>(target);
    widths += (cross && IsOfAttention(layer) ? 2 : 1) * OwnWidths(ShapeOf(model, layer), tensors);
  }
  return int64_t{model.adapters().rank()} * widths;
}

int64_t LinearElements(const v1::ModelSpec& model, bool cross) {
  int64_t elements = 0;
  for (const v1::LinearLayer layer :
       {v1::LINEAR_LAYER_QUERY, v1::LINEAR_LAYER_KEY, v1::LINEAR_LAYER_VALUE, v1::LINEAR_LAYER_OUTPUT,
        v1::LINEAR_LAYER_GATE, v1::LINEAR_LAYER_UP, v1::LINEAR_LAYER_DOWN}) {
    if (layer == v1::LINEAR_LAYER_GATE && !IsGated(model)) continue;
    const AdaptedLinear linear = ShapeOf(model, layer);
    elements += (cross && IsOfAttention(layer) ? 2 : 1) * linear.inputs * linear.outputs;
  }
  return elements;
}

}  // namespace penstock::core
