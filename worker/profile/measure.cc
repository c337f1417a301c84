#include "worker/profile/measure.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/status/status_macros.h"
#include "worker/model/architecture.h"
#include "worker/model/stage_checks.h"
#include "worker/profile/context_shares.h"
#include "worker/profile/fit.h"
#include "worker/profile/measure_copies.h"
#include "worker/profile/measure_link.h"
#include "worker/profile/measure_memory.h"
#include "worker/profile/measure_optimizer.h"
#include "worker/profile/measured_passes.h"
#include "worker/profile/measured_shapes.h"
#include "worker/profile/measured_shares.h"
#include "worker/profile/measuring_time.h"
#include "worker/profile/memory.h"
#include "worker/profile/stage_figures.h"
#include "worker/profile/stage_run.h"
#include "worker/profile/windowed_layers.h"

namespace penstock::worker {
namespace {

constexpr int64_t kMostTokens = 16384;
// Of KeptTimes: the unit of the clock.
constexpr const char* kPulse = "pulse";
// Shares of the time: the layer is most of every model.
constexpr double kLayerShare = 0.55;
constexpr double kHeadShare = 0.3;
constexpr double kEmbeddingShare = 0.1;
// Of the time of whole layers, what each tensor degree takes beside it, each number of context ranks, and
// what bytes take.
constexpr double kTensorShare = 0.3;
constexpr double kShareShare = 0.3;
constexpr double kMemoryShare = 0.1;

MeasuredLayer ToLayer(const MeasuredPasses& passes, const LayerPoints& shares) {
  MeasuredLayer layer;
  layer.forward = FitTime(Joined(passes.forward, shares.forward));
  layer.backward = {FitTime(Joined(passes.backward_input, shares.backward_input)),
                    FitTime(Joined(passes.backward_weight, shares.backward_weight))};
  layer.backward_ratio_none = passes.backward_none_ns / passes.forward_ns;
  layer.backward_ratio_selective = passes.backward_selective_ns / passes.forward_ns;
  layer.backward_ratio_full = passes.backward_full_ns / passes.forward_ns;
  layer.backward_input_share =
      passes.backward_input_ns / (passes.backward_input_ns + passes.backward_weight_ns);
  return layer;
}

int64_t LongestOf(const std::vector<MicroBatch>& shapes) {
  uint32_t longest = 0;
  for (const MicroBatch& shape : shapes) {
    longest = std::max({longest, *std::ranges::max_element(shape.input_tokens),
                        *std::ranges::max_element(shape.target_tokens)});
  }
  return longest;
}

// What is measured one after the other, with its share of the time.
class Measurement {
 public:
  Measurement(const ModelConfig& config, const MeasureSettings& settings, const MeasuredDevice& device,
              NanosecondClock clock)
      : model_(config),
        config_(WithExpertsEverywhere(config)),
        place_(device.place),
        shapes_(MeasuredShapes(config, kMostTokens)),
        layers_(config.encoder_layers + config.layers),
        budget_ns_(settings.seconds * 1e9),
        degrees_(settings.tensor_degrees),
        context_ranks_(settings.context_ranks),
        expert_ranks_(settings.expert_ranks),
        kept_(settings.kept != nullptr ? *settings.kept : keeps_nothing_),
        time_(device, {.threads = settings.threads, .shared_cores = settings.shared_cores}, std::move(clock),
              KeptPulse()) {
    if (!config.dense_layers.empty()) dense_ = WithoutExperts(config);
    // Layers that are neither the first nor the last of their stack have no embedding and no final norm.
    if (!IsT5()) return;
    config_.encoder_layers = 2;
    config_.layers = 4;
  }

  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  bool IsT5() const { return config_.architecture == Architecture::kT5; }

  // Before all parts.
  absl::Status Begin() {
    return KeptPulse() > 0 ? absl::OkStatus() : kept_.Keep(kPulse, {.values = {time_.first_pulse()}});
  }

  absl::StatusOr<MeasuredLayer> Encoder() {
    const Part part = {"encoder", {0, 1, false, false}, SourceFigures, kLayerShare / 2};
    PENSTOCK_ASSIGN_OR_RETURN(StageRun run, Create(part));
    PENSTOCK_ASSIGN_OR_RETURN(const MeasuredPasses passes, Shapes(run, part, /*layer=*/true));
    MeasuredLayer layer = ToLayer(passes, {});
    PENSTOCK_ASSIGN_OR_RETURN(layer.tensor, TensorRanks(run, part, passes, layer.forward));
    layer.parameter_bytes = EncoderParameterBytes(config_);
    PENSTOCK_ASSIGN_OR_RETURN(layer.bytes, BytesOf(run, part, EncoderLayerBytes(config_, ScoresPerChunk())));
    return layer;
  }

  absl::Status Decoder(MeasuredProfile& profile) {
    const double share = IsT5() || dense_.has_value() ? kLayerShare / 2 : kLayerShare;
    PENSTOCK_ASSIGN_OR_RETURN(
        profile.layer,
        Layer("layer", config_, share, DecoderLayerBytes(config_, ScoresPerChunk()), &profile.step));
    profile.layer.parameter_bytes = DecoderParameterBytes(config_);
    if (!dense_.has_value()) return absl::OkStatus();
    PENSTOCK_ASSIGN_OR_RETURN(
        profile.dense,
        Layer("dense", *dense_, share, DenseLayerBytes(model_, ScoresPerChunk()), /*step=*/nullptr));
    profile.dense->parameter_bytes = DenseParameterBytes(model_);
    return absl::OkStatus();
  }

  absl::StatusOr<MeasuredLayer> Head() {
    const Part part = {"head", {config_.layers, 0, false, true}, LossFigures, kHeadShare};
    PENSTOCK_ASSIGN_OR_RETURN(StageRun run, Create(part));
    PENSTOCK_ASSIGN_OR_RETURN(const MeasuredPasses passes, Shapes(run, part, /*layer=*/false));
    MeasuredLayer head;
    head.forward = FitTime(passes.forward);
    PENSTOCK_ASSIGN_OR_RETURN(head.tensor, TensorRanks(run, part, passes, head.forward));
    // The head is never recomputed, and its weight's gradient is never put aside.
    head.backward_ratio_none = passes.backward_none_ns / passes.forward_ns;
    head.backward_ratio_selective = head.backward_ratio_full = head.backward_ratio_none;
    head.backward_input_share = 1;
    head.parameter_bytes = HeadParameterBytes(config_);
    head.bytes = HeadBytes(config_);
    return head;
  }

  absl::Status Embedding(MeasuredProfile& profile) {
    const Part part = {"embedding", {0, 0, true, false}, EmbeddedFigures, kEmbeddingShare};
    PENSTOCK_ASSIGN_OR_RETURN(StageRun run, Create(part));
    PENSTOCK_ASSIGN_OR_RETURN(MeasuredPasses passes, Shapes(run, part, /*layer=*/false));
    // The profile has one time for both directions: their mean.
    const double mean = (1 + passes.backward_none_ns / passes.forward_ns) / 2;
    for (CostPoint& point : passes.forward) point.ns *= mean;
    profile.embedding_forward = FitTime(passes.forward);
    if (IsT5()) profile.embedding_forward.source_token_ns = profile.embedding_forward.target_token_ns;
    profile.embedding_parameter_bytes = EmbeddingParameterBytes(config_);
    return absl::OkStatus();
  }

  // Behind all parts: times as training will have them, and what was seen of the machine meanwhile.
  void Finish(MeasuredProfile& profile) {
    const double scale = time_.Scale();
    if (profile.encoder) profile.encoder->Scale(scale);
    if (profile.dense) profile.dense->Scale(scale);
    profile.layer.Scale(scale);
    profile.head.Scale(scale);
    profile.embedding_forward.Scale(scale);
    profile.step.Scale(scale);
    profile.spread = spreads_.empty() ? 0 : Median(spreads_);
    profile.disturbance = interference_.Describe();
    profile.memory_differences = absl::StrJoin(memory_, "; ");
  }

 private:
  int64_t ScoresPerChunk() const { return place_.is_cpu() ? kScoresPerChunkOnCpu : kScoresPerChunkOnGpu; }

  // A layer, head or embedding.
  struct Part {
    std::string name;
    StageRange range;
    FiguresOfStage figures;
    // Of the time.
    double share = 0;
    // Null: that of all parts but layers without experts.
    const ModelConfig* model = nullptr;
  };

  absl::StatusOr<StageRun> Create(const Part& part, const GroupPlace& group = {}) const {
    const ModelConfig& model = part.model != nullptr ? *part.model : config_;
    return StageRun::Create(model, part.range, group, layers_, place_, time_.clocks());
  }

  // Times and bytes of the decoder, or of a decoder-only model, all of whose layers are alike but for their
  // windows. `counted`: what the bytes should be. `step`: may be null.
  absl::StatusOr<MeasuredLayer> Layer(const std::string& name, const ModelConfig& model, double share,
                                      const LayerBytes& counted, MeasuredStep* step) {
    const int64_t number = IsT5() ? model.layers - 1 : 0;
    const WindowedLayers windows = WindowedLayersOf(model);
    if (windows.differ()) share /= 2;
    const Part part = {
        name, {number, 1, false, false}, FiguresOfLayer(windows.first(), IsT5()), share, &model};
    PENSTOCK_ASSIGN_OR_RETURN(StageRun run, Create(part));
    PENSTOCK_ASSIGN_OR_RETURN(MeasuredPasses passes, Shapes(run, part, /*layer=*/true));
    PENSTOCK_ASSIGN_OR_RETURN(LayerBytes bytes, BytesOf(run, part, counted));
    PENSTOCK_ASSIGN_OR_RETURN(LayerPoints shares, Shares(run, part, passes, windows.first()));
    if (windows.differ()) {
      const Part other = {absl::StrCat(name, " without window"),
                          {windows.without_window, 1, false, false},
                          FiguresOfLayer({}, IsT5()),
                          share,
                          &model};
      PENSTOCK_ASSIGN_OR_RETURN(StageRun without, Create(other));
      PENSTOCK_ASSIGN_OR_RETURN(const MeasuredPasses whole, Shapes(without, other, /*layer=*/true));
      PENSTOCK_ASSIGN_OR_RETURN(const LayerPoints of_whole, Shares(without, other, whole, {}));
      shares = MeanOfPoints(shares, of_whole, windows);
      passes = MeanOfLayers(passes, whole, windows);
      PENSTOCK_ASSIGN_OR_RETURN(const LayerBytes of_other, BytesOf(without, other, counted));
      bytes = LargerOf(bytes, of_other);
    }
    MeasuredLayer layer = ToLayer(passes, shares);
    layer.bytes = bytes;
    PENSTOCK_ASSIGN_OR_RETURN(layer.tensor, TensorRanks(run, part, passes, layer.forward));
    if (model.experts > 0) PENSTOCK_RETURN_IF_ERROR(AddExpertRanks(run, part, passes, layer));
    if (step != nullptr) {
      PENSTOCK_ASSIGN_OR_RETURN(*step, MeasureOptimizer(run));
    }
    return layer;
  }

  absl::StatusOr<MeasuredPasses> Shapes(StageRun& run, const Part& part, bool layer) {
    PENSTOCK_ASSIGN_OR_RETURN(
        MeasuredPasses passes,
        MeasureShapes(run, shapes_, part.figures, layer, part.share * budget_ns_, {&kept_, part.name}));
    interference_.Add(passes.interference);
    visited_ = passes.forward.size();
    // Head and embedding of short samples are a few microseconds, of which repeats differ more.
    if (layer) spreads_.insert(spreads_.end(), passes.spreads.begin(), passes.spreads.end());
    return passes;
  }

  // Of shapes that there was time for: larger ones would take too much.
  absl::StatusOr<LayerBytes> BytesOf(StageRun& run, const Part& part, const LayerBytes& counted) {
    const int64_t longest = LongestOf(shapes_);
    const std::vector<MicroBatch> shapes =
        MemoryShapes(absl::MakeConstSpan(shapes_).first(visited_), longest);
    PENSTOCK_ASSIGN_OR_RETURN(
        const LayerBytes bytes,
        MeasureLayerBytes(run, shapes, part.figures, counted, longest, kMemoryShare * part.share * budget_ns_,
                          {&kept_, absl::StrCat(part.name, " bytes")}));
    const std::string differences = DifferencesOf(bytes, counted);
    if (!differences.empty()) memory_.push_back(absl::StrCat(part.name, ": ", differences));
    return bytes;
  }

  // Of one rank of each number of context ranks, on shapes that `passes` are of.
  absl::StatusOr<LayerPoints> Shares(StageRun& whole, const Part& part, const MeasuredPasses& passes,
                                     const ShapeWindows& windows) {
    LayerPoints points;
    for (const int contexts : context_ranks_) {
      const GroupPlace place = {.context = MeasuredContext(contexts), .contexts = contexts};
      PENSTOCK_ASSIGN_OR_RETURN(StageRun rank, Create(part, place));
      const ShareMeasurement measurement = {.figures = part.figures,
                                            .share_figures = FiguresOfShare(windows, place.context),
                                            .budget_ns = kShareShare * part.share * budget_ns_,
                                            .kept = {&kept_, absl::StrCat(part.name, " context ", contexts)}};
      PENSTOCK_ASSIGN_OR_RETURN(
          const LayerPoints shares,
          MeasureShares(whole, rank, absl::MakeConstSpan(shapes_).first(passes.forward.size()), passes,
                        measurement));
      points.Add(shares);
    }
    return points;
  }

  // At each degree, on shapes that `passes` are of.
  absl::StatusOr<std::vector<TensorTime>> TensorRanks(StageRun& whole, const Part& part,
                                                      const MeasuredPasses& passes,
                                                      const MeasuredTime& form) {
    const std::vector<MicroBatch> shapes = Spread(shapes_, passes.forward.size());
    std::vector<TensorTime> times;
    for (const int degree : degrees_) {
      if (degree == 1) continue;
      PENSTOCK_ASSIGN_OR_RETURN(StageRun rank, Create(part, {.tensors = degree}));
      PENSTOCK_ASSIGN_OR_RETURN(times.emplace_back(),
                                MeasureTensorRank(whole, rank, degree, shapes, part.figures, form,
                                                  kTensorShare * part.share * budget_ns_,
                                                  {&kept_, absl::StrCat(part.name, " tensor ", degree)}));
    }
    return times;
  }

  // Beside whole layers and at each degree, with as many tokens on every rank: behind those without experts.
  absl::Status AddExpertRanks(StageRun& whole, const Part& part, const MeasuredPasses& passes,
                              MeasuredLayer& layer) {
    const std::vector<MicroBatch> shapes = Spread(shapes_, passes.forward.size());
    std::set<int> degrees(degrees_.begin(), degrees_.end());
    degrees.insert(1);
    for (const int degree : degrees) {
      if (expert_ranks_ == 1 || expert_ranks_ % degree != 0) continue;
      const GroupPlace group = {
          .contexts = expert_ranks_ / degree, .tensors = degree, .experts = expert_ranks_};
      PENSTOCK_ASSIGN_OR_RETURN(StageRun rank, Create(part, group));
      PENSTOCK_ASSIGN_OR_RETURN(TensorTime time,
                                MeasureTensorRank(whole, rank, degree, shapes, part.figures, layer.forward,
                                                  kTensorShare * part.share * budget_ns_,
                                                  {&kept_, absl::StrCat(part.name, " experts ", degree)}));
      time.expert = expert_ranks_;
      const auto behind = std::ranges::upper_bound(layer.tensor, degree, {}, &TensorTime::degree);
      layer.tensor.insert(behind, time);
    }
    return absl::OkStatus();
  }

  // 0: none was kept.
  double KeptPulse() const {
    const KeptFigures* const pulse = kept_.Find(kPulse);
    return pulse != nullptr && pulse->values.size() == 1 ? pulse->values.front() : 0;
  }

  // As it was asked for.
  const ModelConfig model_;
  // Every layer has experts, if the model has some; and of layers that have none, where there are both.
  ModelConfig config_;
  std::optional<ModelConfig> dense_;
  const at::Device place_;
  const std::vector<MicroBatch> shapes_;
  const int64_t layers_;
  const double budget_ns_;
  const std::vector<int> degrees_;
  const std::vector<int> context_ranks_;
  const int expert_ranks_;
  KeptTimes keeps_nothing_;
  KeptTimes& kept_;
  MeasuringTime time_;
  Interference interference_;
  std::vector<double> spreads_;
  // Of the stage that was measured last.
  size_t visited_ = 0;
  // By layer, where bytes are not as they are counted.
  std::vector<std::string> memory_;
};

}  // namespace

absl::StatusOr<MeasuredProfile> MeasureProfile(const ModelConfig& config, const MeasureSettings& settings,
                                               const MeasuredDevice& device, NanosecondClock clock) {
  for (const int degree : settings.tensor_degrees) {
    PENSTOCK_RETURN_IF_ERROR(CheckTensorRanks(config, degree));
  }
  for (const int contexts : settings.context_ranks) {
    PENSTOCK_RETURN_IF_ERROR(CheckContextRanks(config, contexts));
  }
  PENSTOCK_RETURN_IF_ERROR(
      CheckExpertRanks(config, {.contexts = settings.expert_ranks, .experts = settings.expert_ranks}));
  at::set_num_threads(settings.threads);
  Measurement measurement(config, settings, device, std::move(clock));
  MeasuredProfile profile;
  PENSTOCK_RETURN_IF_ERROR(measurement.Begin());
  if (measurement.IsT5()) {
    PENSTOCK_ASSIGN_OR_RETURN(profile.encoder, measurement.Encoder());
  }
  PENSTOCK_RETURN_IF_ERROR(measurement.Decoder(profile));
  PENSTOCK_ASSIGN_OR_RETURN(profile.head, measurement.Head());
  PENSTOCK_RETURN_IF_ERROR(measurement.Embedding(profile));
  measurement.Finish(profile);
  if (settings.links) {
    PENSTOCK_ASSIGN_OR_RETURN(profile.link, MeasureLink(device));
    PENSTOCK_ASSIGN_OR_RETURN(profile.collective, MeasureCollective(device, settings.side_by_side));
  }
  // By all that measure side by side: ranks of a host share its memory, and copy at the same time.
  if (config.experts > 0) {
    PENSTOCK_ASSIGN_OR_RETURN(profile.copy_bytes_per_second, MeasureCopies(device));
  }
  profile.state_bytes_per_parameter_byte = StateBytesPerParameterByte(config.dtype);
  profile.sharded_state_bytes_per_parameter_byte = OptimizerBytesPerParameterByte(config.dtype);
  profile.memory_bytes = device.memory_bytes;
  return profile;
}

std::vector<int> DegreesThatDivide(const ModelConfig& config, const std::vector<int>& degrees) {
  std::vector<int> dividing;
  for (const int degree : degrees) {
    if (CheckTensorRanks(config, degree).ok()) dividing.push_back(degree);
  }
  return dividing;
}

}  // namespace penstock::worker
