#include "planner/core/cost/analytic_profile.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/core/cost/analytic_json.h"
#include "planner/core/cost/analytic_tables.h"
#include "planner/core/cost/analytic_units.h"
#include "planner/core/cost/closed_form.h"

namespace penstock::core {
namespace {

using Json = nlohmann::json;

constexpr double kNsPerSecond = 1e9;
constexpr double kMostClusterNumber = 1e11;
// How far beyond the longest sequence of the grid the closed forms are trusted.
constexpr uint32_t kBeyondTheGrid = 8;
// 1e9 bits a second, in bytes.
constexpr double kBytesPerGigabit = 1e9 / 8;

// Model sizes as the formulas name them.
struct Sizes {
  double H = 0;
  double A = 0;
  double F = 0;
  double V = 0;
};

// Fills a profile from the file.
struct Reader {
  const Json& root;
  v1::CostProfile* profile;
  Sizes sizes;
  bool t5 = false;

  absl::Status ReadModel(v1::ModelSpec* model);
  absl::Status ReadCluster();
  absl::Status ReadGrid();
  absl::Status ReadState();
  absl::Status ReadBackward(v1::LayerCost* layer);
  absl::Status ReadGptLayers();
  absl::Status ReadT5Layers();
  absl::Status FinishHead();
  void AddTensorCosts() const;
};

absl::Status Reader::ReadModel(v1::ModelSpec* model) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string architecture, TextAt(root, {"model", "architecture"}));
  if (architecture != "gpt" && architecture != "t5") {
    return absl::InvalidArgumentError(
        absl::StrCat("model.architecture: '", architecture, "'; known are 'gpt' and 't5'"));
  }
  t5 = architecture == "t5";
  const auto read = [&](const std::string& key) { return CountAt(root, {"model", key}); };
  PENSTOCK_ASSIGN_OR_RETURN(sizes.H, read("hidden"));
  PENSTOCK_ASSIGN_OR_RETURN(sizes.F, read("ffn"));
  PENSTOCK_ASSIGN_OR_RETURN(sizes.V, read("vocab"));
  PENSTOCK_ASSIGN_OR_RETURN(const uint32_t heads, read("heads"));
  PENSTOCK_ASSIGN_OR_RETURN(const uint32_t element, read("bytes_per_element"));
  if (element != 2) return absl::InvalidArgumentError("model.bytes_per_element: only 2 (bfloat16) is known");
  model->set_architecture(t5 ? v1::ARCHITECTURE_T5 : v1::ARCHITECTURE_GPT);
  model->set_hidden(static_cast<uint32_t>(sizes.H));
  model->set_ffn(static_cast<uint32_t>(sizes.F));
  model->set_vocab(static_cast<uint32_t>(sizes.V));
  model->set_heads(heads);
  model->set_dtype(v1::DATA_TYPE_BFLOAT16);
  profile->set_bytes_per_element(2);
  if (!t5) {
    PENSTOCK_ASSIGN_OR_RETURN(const uint32_t layers, read("layers"));
    model->set_layers(layers);
    return absl::OkStatus();
  }
  PENSTOCK_ASSIGN_OR_RETURN(const uint32_t encoder, read("encoder_layers"));
  PENSTOCK_ASSIGN_OR_RETURN(const uint32_t decoder, read("decoder_layers"));
  PENSTOCK_ASSIGN_OR_RETURN(sizes.A, read("attention_inner"));
  model->set_encoder_layers(encoder);
  model->set_decoder_layers(decoder);
  model->set_attention_inner(static_cast<uint32_t>(sizes.A));
  return absl::OkStatus();
}

absl::Status Reader::ReadCluster() {
  const auto read = [&](const std::string& key) { return NumberAt(root, {"cluster", key}); };
  v1::Cluster* cluster = profile->mutable_cluster();
  PENSTOCK_ASSIGN_OR_RETURN(const double memory_mb, read("memory_mb"));
  PENSTOCK_ASSIGN_OR_RETURN(const double intra_gbps, read("intra_node_gbps"));
  PENSTOCK_ASSIGN_OR_RETURN(const double inter_gbps, read("inter_node_gbps"));
  PENSTOCK_ASSIGN_OR_RETURN(const double intra_us, read("intra_node_latency_us"));
  PENSTOCK_ASSIGN_OR_RETURN(const double inter_us, read("inter_node_latency_us"));
  PENSTOCK_ASSIGN_OR_RETURN(const uint32_t gpus, CountAt(root, {"cluster", "gpus_per_node"}));
  // More would not fit into 64 bits.
  for (const double number : {memory_mb, intra_us, inter_us}) {
    if (number > kMostClusterNumber) {
      return absl::InvalidArgumentError(
          absl::StrCat("cluster: ", number, " is too large: memory is in MB, latencies in microseconds"));
    }
  }
  cluster->set_memory_bytes(std::llround(memory_mb * kBytesPerMb));
  cluster->set_intra_node_bytes_per_second(intra_gbps * kBytesPerGigabit);
  cluster->set_inter_node_bytes_per_second(inter_gbps * kBytesPerGigabit);
  cluster->set_intra_node_latency_ns(std::llround(intra_us * 1e3));
  cluster->set_inter_node_latency_ns(std::llround(inter_us * 1e3));
  cluster->set_gpus_per_node(gpus);
  return absl::OkStatus();
}

absl::Status Reader::ReadGrid() {
  const auto read = [&](const std::string& key,
                        google::protobuf::RepeatedField<uint32_t>* axis) -> absl::Status {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<uint32_t> values, CountsAt(root, {"grid", key}));
    if (values.empty()) return absl::InvalidArgumentError(absl::StrCat("grid.", key, " is empty"));
    axis->Add(values.begin(), values.end());
    return absl::OkStatus();
  };
  v1::Grid* grid = profile->mutable_grid();
  PENSTOCK_RETURN_IF_ERROR(read("micro_batch_size", grid->mutable_micro_batch_size()));
  if (!t5) return read("sequence_length", grid->mutable_target_length());
  PENSTOCK_RETURN_IF_ERROR(read("source_length", grid->mutable_source_length()));
  return read("target_length", grid->mutable_target_length());
}

absl::Status Reader::ReadState() {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, TextAt(root, {"optimizer"}));
  absl::StatusOr<std::vector<double>> numbers = MatchFormula(
      "16-bit Adam with fp32 master copy: total state = # x parameter_mb (# bytes weight + # gradient + # "
      "optimizer "
      "per parameter); ZeRO-1 divides the # by dp",
      text);
  if (!numbers.ok()) return AnnotateError(numbers.status(), "optimizer");
  const std::vector<double>& n = *numbers;
  if (n[0] != (n[1] + n[2] + n[3]) / n[1] || n[3] != n[4]) {
    return absl::InvalidArgumentError("optimizer: its numbers contradict each other");
  }
  profile->set_state_bytes_per_parameter_byte(n[0]);
  profile->set_sharded_state_bytes_per_parameter_byte(n[3] / n[1]);
  return absl::OkStatus();
}

absl::Status Reader::ReadBackward(v1::LayerCost* layer) {
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::vector<double> n,
      FormulaAt(root, "backward", "#x forward (recompute none), #x (selective), #x (full)"));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string split, TextAt(root, {"closed_form", "split_backward"}));
  if (split != "dX = dW = half of the backward without recompute") {
    return absl::InvalidArgumentError(
        absl::StrCat("closed_form.split_backward: '", split, "' is not a form that is known"));
  }
  layer->set_backward_ratio_none(n[0]);
  layer->set_backward_ratio_selective(n[1]);
  layer->set_backward_ratio_full(n[2]);
  layer->set_backward_input_share(0.5);
  return absl::OkStatus();
}

// Nanoseconds of so many floating-point operations at `speed` of them a second.
double Nanoseconds(double operations, double speed) { return operations / speed * kNsPerSecond; }

absl::Status Reader::ReadGptLayers() {
  v1::LayerCost* layer = profile->add_layers();
  layer->set_name("layer");
  PENSTOCK_ASSIGN_OR_RETURN(const double layer_mb, NumberAt(root, {"parameter_mb", "layer"}));
  layer->set_parameter_bytes(layer_mb * kBytesPerMb);
  PENSTOCK_ASSIGN_OR_RETURN(
      std::vector<double> n,
      FormulaAt(root, "layer_forward_ms", "# + (#*t*H^2 + #*H*sum(s_i^2)) / (# * t/(t+#)) * 1e3"));
  v1::LayerTime* time = layer->mutable_forward();
  time->set_fixed_ns(n[0] * kNsPerMs);
  time->set_target_token_ns(Nanoseconds(n[1] * sizes.H * sizes.H, n[3]));
  time->set_target_square_ns(Nanoseconds(n[2] * sizes.H, n[3]));
  time->set_half_efficiency_tokens(n[4]);
  PENSTOCK_RETURN_IF_ERROR(ReadBackward(layer));
  PENSTOCK_ASSIGN_OR_RETURN(
      n, FormulaAt(root, "stored_mb", "#*t*H/1e6 (none), #*t*H/1e6 (selective), #*t*H/1e6 (full)"));
  layer->mutable_stored_none()->set_target_token_bytes(n[0] * sizes.H);
  layer->mutable_stored_selective()->set_target_token_bytes(n[1] * sizes.H);
  layer->mutable_stored_full()->set_target_token_bytes(n[2] * sizes.H);
  *layer->mutable_peak() = layer->stored_none();

  v1::LayerCost* head = profile->add_layers();
  head->set_name("head");
  PENSTOCK_ASSIGN_OR_RETURN(n, FormulaAt(root, "head_forward_ms", "# + #*t*H*V / (# * t/(t+#)) * 1e3"));
  head->mutable_forward()->set_fixed_ns(n[0] * kNsPerMs);
  head->mutable_forward()->set_target_token_ns(Nanoseconds(n[1] * sizes.H * sizes.V, n[2]));
  head->mutable_forward()->set_half_efficiency_tokens(n[3]);
  return absl::OkStatus();
}

absl::Status Reader::ReadT5Layers() {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string symbols, TextAt(root, {"closed_form", "symbols"}));
  const size_t place = symbols.find("E(n) = ");
  if (place == std::string::npos)
    return absl::InvalidArgumentError("closed_form.symbols: E(n) is not defined");
  absl::StatusOr<std::vector<double>> efficiency =
      MatchFormula("E(n) = # * n/(n+#)", absl::string_view(symbols).substr(place));
  if (!efficiency.ok()) return AnnotateError(efficiency.status(), "closed_form.symbols");
  const double speed = (*efficiency)[0];
  const double half = (*efficiency)[1];
  const auto [H, A, F, V] = sizes;

  v1::LayerCost* encoder = profile->add_layers();
  encoder->set_name("encoder");
  PENSTOCK_ASSIGN_OR_RETURN(double mb, NumberAt(root, {"parameter_mb", "encoder_layer"}));
  encoder->set_parameter_bytes(mb * kBytesPerMb);
  PENSTOCK_ASSIGN_OR_RETURN(
      std::vector<double> n,
      FormulaAt(root, "encoder_forward_ms", "# + (#*ts*(#*H*A + #*H*F) + #*A*sum(s_i^2)) / E(ts) * 1e3"));
  v1::LayerTime* time = encoder->mutable_forward();
  time->set_fixed_ns(n[0] * kNsPerMs);
  time->set_source_token_ns(Nanoseconds(n[1] * (n[2] * H * A + n[3] * H * F), speed));
  time->set_source_square_ns(Nanoseconds(n[4] * A, speed));
  time->set_half_efficiency_tokens(half);
  PENSTOCK_RETURN_IF_ERROR(ReadBackward(encoder));
  PENSTOCK_ASSIGN_OR_RETURN(
      n, FormulaAt(root, "encoder_stored_mb",
                   "(#*H + #*A + #*F)*ts/1e6 (none), (#*H + #*F)*ts/1e6 (selective), #*H*ts/1e6 (full)"));
  encoder->mutable_stored_none()->set_source_token_bytes(n[0] * H + n[1] * A + n[2] * F);
  encoder->mutable_stored_selective()->set_source_token_bytes(n[3] * H + n[4] * F);
  encoder->mutable_stored_full()->set_source_token_bytes(n[5] * H);
  *encoder->mutable_peak() = encoder->stored_none();

  v1::LayerCost* decoder = profile->add_layers();
  decoder->set_name("decoder");
  PENSTOCK_ASSIGN_OR_RETURN(mb, NumberAt(root, {"parameter_mb", "decoder_layer"}));
  decoder->set_parameter_bytes(mb * kBytesPerMb);
  PENSTOCK_ASSIGN_OR_RETURN(
      n, FormulaAt(root, "decoder_forward_ms",
                   "# + ((#*tu*(#*H*A + #*H*F) + #*A*sum(u_i^2) + #*A*sum(s_i*u_i)) / E(tu) "
                   "+ #*ts*H*A / E(ts)) * 1e3"));
  time = decoder->mutable_forward();
  time->set_fixed_ns(n[0] * kNsPerMs);
  time->set_target_token_ns(Nanoseconds(n[1] * (n[2] * H * A + n[3] * H * F), speed));
  time->set_target_square_ns(Nanoseconds(n[4] * A, speed));
  time->set_cross_ns(Nanoseconds(n[5] * A, speed));
  time->set_source_token_ns(Nanoseconds(n[6] * H * A, speed));
  time->set_half_efficiency_tokens(half);
  PENSTOCK_RETURN_IF_ERROR(ReadBackward(decoder));
  PENSTOCK_ASSIGN_OR_RETURN(
      n, FormulaAt(
             root, "decoder_stored_mb",
             "((#*H + #*A + #*F)*tu + (#*H + #*A)*ts)/1e6 (none), ((#*H + #*F)*tu + #*H*ts)/1e6 (selective), "
             "(#*H*tu + #*H*ts)/1e6 (full)"));
  decoder->mutable_stored_none()->set_target_token_bytes(n[0] * H + n[1] * A + n[2] * F);
  decoder->mutable_stored_none()->set_source_token_bytes(n[3] * H + n[4] * A);
  decoder->mutable_stored_selective()->set_target_token_bytes(n[5] * H + n[6] * F);
  decoder->mutable_stored_selective()->set_source_token_bytes(n[7] * H);
  decoder->mutable_stored_full()->set_target_token_bytes(n[8] * H);
  decoder->mutable_stored_full()->set_source_token_bytes(n[9] * H);
  *decoder->mutable_peak() = decoder->stored_none();

  v1::LayerCost* head = profile->add_layers();
  head->set_name("head");
  PENSTOCK_ASSIGN_OR_RETURN(n, FormulaAt(root, "head_forward_ms", "# + #*tu*H*V / E(tu) * 1e3"));
  head->mutable_forward()->set_fixed_ns(n[0] * kNsPerMs);
  head->mutable_forward()->set_target_token_ns(Nanoseconds(n[1] * H * V, speed));
  head->mutable_forward()->set_half_efficiency_tokens(half);
  return absl::OkStatus();
}

// Of what a layer takes on one rank, a rank of several takes a little more than its part: products are
// smaller. What a rank sends in a collective goes one way, of the two that a link's speed counts.
void Reader::AddTensorCosts() const {
  constexpr std::pair<uint32_t, double> kEfficiencies[] = {{2, 0.95}, {4, 0.90}, {8, 0.82}};
  for (v1::LayerCost& layer : *profile->mutable_layers()) {
    for (const auto& [degree, efficiency] : kEfficiencies) {
      v1::TensorCost* cost = layer.add_tensor();
      cost->set_degree(degree);
      cost->set_efficiency(efficiency);
    }
  }
  v1::Cluster* cluster = profile->mutable_cluster();
  cluster->set_attention_hides_exchange(true);
  cluster->set_exchange_overlap(1);
  cluster->set_intra_node_collective_bytes_per_second(cluster->intra_node_bytes_per_second() / 2);
}

// The head is never recomputed, and its matrix is as large as the embedding.
absl::Status Reader::FinishHead() {
  v1::LayerCost* head = profile->mutable_layers(profile->layers_size() - 1);
  PENSTOCK_RETURN_IF_ERROR(ReadBackward(head));
  head->set_backward_ratio_selective(head->backward_ratio_none());
  head->set_backward_ratio_full(head->backward_ratio_none());
  head->set_parameter_bytes(profile->embedding_parameter_bytes());
  head->mutable_stored_none();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::ProfileFile> ParseAnalyticProfile(const nlohmann::json& root) {
  v1::ProfileFile file;
  v1::CostProfile* profile = file.mutable_profile();
  PENSTOCK_ASSIGN_OR_RETURN(*profile->mutable_name(), TextAt(root, {"name"}));
  profile->set_version(1);
  Reader reader{root, profile, {}};
  PENSTOCK_RETURN_IF_ERROR(reader.ReadModel(file.mutable_model()));
  PENSTOCK_RETURN_IF_ERROR(reader.ReadCluster());
  PENSTOCK_RETURN_IF_ERROR(reader.ReadGrid());
  PENSTOCK_RETURN_IF_ERROR(reader.ReadState());
  PENSTOCK_RETURN_IF_ERROR(reader.t5 ? reader.ReadT5Layers() : reader.ReadGptLayers());
  PENSTOCK_ASSIGN_OR_RETURN(const double embedding_mb, NumberAt(root, {"parameter_mb", "embedding"}));
  profile->set_embedding_parameter_bytes(embedding_mb * kBytesPerMb);
  PENSTOCK_RETURN_IF_ERROR(reader.FinishHead());
  reader.AddTensorCosts();
  PENSTOCK_RETURN_IF_ERROR(ReadAnalyticTables(root, profile));
  // The closed forms hold beyond the longest sequence of the grid.
  const v1::Grid& grid = profile->grid();
  uint32_t longest = *grid.target_length().rbegin();
  if (grid.source_length_size() > 0) longest = std::max(longest, *grid.source_length().rbegin());
  file.mutable_model()->set_max_sequence_length(
      std::min(longest, std::numeric_limits<uint32_t>::max() / kBeyondTheGrid) * kBeyondTheGrid);
  return file;
}

}  // namespace penstock::core
