#include "planner/core/cost/accelerator_profile.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/adapters.h"
#include "planner/core/contract/check_model.h"
#include "planner/core/contract/element_bytes.h"
#include "planner/core/contract/model_experts.h"
#include "planner/core/contract/model_heads.h"

namespace penstock::core {
namespace {

constexpr double kNsOfASecond = 1e9;
// A multiplication and an addition.
constexpr double kFlopsOfProduct = 2;
// What a rank of several computes of its part, beside a rank alone: products are smaller.
constexpr std::pair<uint32_t, double> kTensorEfficiencies[] = {{2, 0.95}, {4, 0.90}, {8, 0.82}};
// Of a backward pass in forward passes: none, and what runs again of attention, of rows of experts too, and
// of the whole layer.
constexpr double kBackward = 2;
constexpr double kSelectiveBackward = 2.15;
constexpr double kSelectiveBackwardOfExperts = 2.3;
constexpr double kFullBackward = 3;

// A layer's widths, and what follows from them for one token. Counts are of elements.
struct LayerWidths {
  double hidden = 0;
  // Of all query heads, and of all key heads, which is that of the value heads.
  double inner = 0;
  double key_value = 0;
  // Of the feed-forward part, or of an expert; how many there are, and how many a token goes to. A dense part
  // is one expert that all tokens go to, without a router.
  double ffn = 0;
  double experts = 1;
  double rows = 1;
  bool has_experts = false;
  double shared_ffn = 0;
  bool shared_gate = false;
  // Of a feed-forward part; 3 where it is gated.
  double matrices = 2;
  // Parts of its width that are kept: of a ReLU the result alone.
  double kept_parts = 2;
  double norms = 2;
  bool head_norms = false;

  double attention_elements() const { return hidden * (2 * inner + 2 * key_value); }
  double shared_elements() const { return hidden * (matrices * shared_ffn + (shared_gate ? 1 : 0)); }
  double router_elements() const { return has_experts ? hidden * experts : 0; }
  // Of all parameters, and of those that a token is multiplied with.
  double elements() const {
    return attention_elements() + experts * matrices * hidden * ffn + shared_elements() + router_elements();
  }
  double products() const {
    return attention_elements() + rows * matrices * hidden * ffn + shared_elements() + router_elements();
  }
  // Rows of experts have inputs, and gradients of outputs, of their own.
  double row_elements() const { return has_experts ? 2 * rows * hidden : 0; }
  double feed_forward_kept() const { return rows * kept_parts * ffn; }
  // Each part's input and what norms made; queries, keys, values and what attention made of them, and what
  // they were before their norms; the feed-forward parts'.
  double kept_selective() const {
    return (2 + norms) * hidden + (2 * inner + 2 * key_value) + (head_norms ? inner + key_value : 0) +
           feed_forward_kept() + kept_parts * shared_ffn;
  }
  double kept() const { return kept_selective() + row_elements(); }
  double feed_forward_gradients() const {
    const double parts = matrices > 2 ? 3 : 2;
    if (!has_experts) return parts * hidden + 2 * ffn;
    const double shared = shared_ffn > 0 ? parts * shared_ffn + 2 * hidden : 0;
    return 3 * hidden + rows * parts * ffn + row_elements() + shared;
  }
  // Of a layer while it runs backward. What its feed-forward part kept is gone when attention runs.
  double gradients() const {
    const double attention = 3 * hidden + 3 * inner + 4 * key_value;
    const double beside = attention > kept() ? attention : attention - feed_forward_kept();
    return std::max(feed_forward_gradients(), beside);
  }
};

LayerWidths WidthsOf(const v1::ModelSpec& model) {
  LayerWidths widths = {.hidden = static_cast<double>(model.hidden()),
                        .inner = static_cast<double>(HeadWidth(model)) * model.heads(),
                        .key_value = static_cast<double>(HeadWidth(model)) * KeyValueHeads(model),
                        .ffn = static_cast<double>(model.ffn()),
                        .shared_ffn = static_cast<double>(model.shared_expert_ffn()),
                        .shared_gate = model.gated_shared_expert(),
                        .norms = model.norm_placement() == v1::NORM_PLACEMENT_BOTH ? 4.0 : 2.0,
                        .head_norms = model.head_norms() || model.joint_head_norms()};
  if (IsGated(model)) widths.matrices = widths.kept_parts = 3;
  if (model.feed_forward() == v1::FEED_FORWARD_RELU) widths.kept_parts = 1;
  if (model.experts() == 0) return widths;
  widths.has_experts = true;
  widths.experts = model.experts();
  widths.rows = model.experts_per_token();
  return widths;
}

// A layer of the model without experts.
LayerWidths DenseWidthsOf(v1::ModelSpec model) {
  model.set_ffn(DenseWidth(model));
  model.set_experts(0);
  model.set_shared_expert_ffn(0);
  model.set_gated_shared_expert(false);
  return WidthsOf(model);
}

struct LayerMaker {
  const Accelerator& accelerator;
  double element_bytes;

  double Nanoseconds(double products) const {
    return kFlopsOfProduct * products / accelerator.flops * kNsOfASecond;
  }

  v1::LayerCost Make(const char* name, double parameters, double products_of_token) const {
    v1::LayerCost layer;
    layer.set_name(name);
    layer.set_parameter_bytes(element_bytes * parameters);
    layer.mutable_forward()->set_fixed_ns(accelerator.fixed_ns);
    layer.mutable_forward()->set_target_token_ns(Nanoseconds(products_of_token));
    layer.mutable_forward()->set_half_efficiency_tokens(accelerator.half_efficiency_tokens);
    layer.set_backward_ratio_none(kBackward);
    for (const auto& [degree, efficiency] : kTensorEfficiencies) {
      v1::TensorCost& cost = *layer.add_tensor();
      cost.set_degree(degree);
      cost.set_efficiency(efficiency);
    }
    return layer;
  }

  v1::LayerCost MakeLayer(const char* name, const LayerWidths& widths) const {
    v1::LayerCost layer = Make(name, widths.elements(), widths.products());
    // Scores and their sums of values; half of them, as no token sees those behind it.
    layer.mutable_forward()->set_target_square_ns(Nanoseconds(widths.inner));
    layer.set_backward_ratio_selective(widths.has_experts ? kSelectiveBackwardOfExperts : kSelectiveBackward);
    layer.set_backward_ratio_full(kFullBackward);
    layer.set_backward_input_share(0.5);
    layer.mutable_stored_none()->set_target_token_bytes(element_bytes * widths.kept());
    layer.mutable_stored_selective()->set_target_token_bytes(element_bytes * widths.kept_selective());
    layer.mutable_stored_full()->set_target_token_bytes(element_bytes * widths.hidden);
    layer.mutable_peak()->set_target_token_bytes(element_bytes *
                                                 (widths.kept() - widths.hidden + widths.gradients()));
    return layer;
  }
};

v1::Cluster ClusterOf(const Accelerator& accelerator) {
  v1::Cluster cluster;
  cluster.set_memory_bytes(accelerator.memory_bytes);
  cluster.set_intra_node_bytes_per_second(accelerator.intra_node_bytes_per_second);
  cluster.set_inter_node_bytes_per_second(accelerator.inter_node_bytes_per_second);
  cluster.set_intra_node_latency_ns(accelerator.intra_node_latency_ns);
  cluster.set_inter_node_latency_ns(accelerator.inter_node_latency_ns);
  cluster.set_gpus_per_node(accelerator.gpus_per_node);
  // One way, of the two that a link's speed counts.
  cluster.set_intra_node_collective_bytes_per_second(accelerator.intra_node_bytes_per_second / 2);
  cluster.set_inter_node_collective_bytes_per_second(accelerator.inter_node_bytes_per_second / 2);
  cluster.set_attention_hides_exchange(true);
  cluster.set_exchange_overlap(1);
  cluster.set_copy_bytes_per_second(accelerator.copy_bytes_per_second);
  return cluster;
}

// Adam: weights and gradients as they are, and two moments, of 16-bit numbers a copy too, in at least 4
// bytes.
void SetState(double element_bytes, v1::CostProfile* profile) {
  const double sharded = element_bytes < 4 ? 3 * 4 / element_bytes : 2;
  profile->set_state_bytes_per_parameter_byte(2 + sharded);
  profile->set_sharded_state_bytes_per_parameter_byte(sharded);
}

absl::Status CheckAnalytic(const v1::ModelSpec& model) {
  if (model.architecture() == v1::ARCHITECTURE_T5)
    return absl::InvalidArgumentError(
        "job.model.architecture: there are no formulas for a T5; measure it (penstock profile measure)");
  if (model.has_adapters())
    return absl::InvalidArgumentError(
        "job.model.adapters: leave them, plans add them to the profile of the model without (--lora-rank)");
  return CheckModel(model);
}

}  // namespace

absl::StatusOr<v1::ProfileFile> AcceleratorProfile(const v1::ModelSpec& model,
                                                   const Accelerator& accelerator) {
  PENSTOCK_RETURN_IF_ERROR(CheckAnalytic(model));
  const LayerMaker maker = {accelerator, static_cast<double>(ElementBytes(model.dtype()))};
  v1::ProfileFile file;
  *file.mutable_model() = model;
  v1::CostProfile& profile = *file.mutable_profile();
  profile.set_name("analytic");
  profile.set_version(1);
  profile.set_comment(absl::StrFormat(
      "Analytic, not measured: accelerators of %.4g TFLOP/s, half of it with %g tokens, and %.4g GB, %d a "
      "node; %.4g GB/s inside a node and %.4g GB/s between nodes, half of it in collectives; copies at %.4g "
      "GB/s.",
      accelerator.flops / 1e12, accelerator.half_efficiency_tokens,
      static_cast<double>(accelerator.memory_bytes) / 1e9, accelerator.gpus_per_node,
      accelerator.intra_node_bytes_per_second / 1e9, accelerator.inter_node_bytes_per_second / 1e9,
      accelerator.copy_bytes_per_second / 1e9));
  *profile.add_layers() = maker.MakeLayer("layer", WidthsOf(model));
  if (!model.dense_layers().empty()) *profile.add_layers() = maker.MakeLayer("dense", DenseWidthsOf(model));
  const double table = static_cast<double>(model.hidden()) * model.vocab();
  v1::LayerCost& head = *profile.add_layers() = maker.Make("head", table, table);
  head.set_loss_tokens_only(true);
  const bool learned =
      model.position() == v1::POSITION_LEARNED || model.position() == v1::POSITION_UNSPECIFIED;
  const double positions = learned ? static_cast<double>(model.hidden()) * model.max_sequence_length() : 0;
  profile.set_embedding_parameter_bytes(maker.element_bytes * (table + positions));
  profile.set_bytes_per_element(static_cast<uint32_t>(maker.element_bytes));
  SetState(maker.element_bytes, &profile);
  *profile.mutable_cluster() = ClusterOf(accelerator);
  return file;
}

}  // namespace penstock::core
