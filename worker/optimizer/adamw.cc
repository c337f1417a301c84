#include "worker/optimizer/adamw.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/status/status_macros.h"
#include "worker/checkpoint/initial_values.h"
#include "worker/optimizer/flat_squares.h"
#include "worker/optimizer/learning_rate.h"
#include "worker/optimizer/parameter_slice.h"
#include "worker/torch/boundary.h"
#include "worker/torch/data_type.h"

namespace penstock::worker {
namespace {

// Elements that a thread takes at least.
constexpr int64_t kGrain = 1 << 14;
// Elements whose masters are still in the cache when they are rounded.
constexpr int64_t kBlockOfUpdate = 1 << 11;

at::Tensor Part(const at::Tensor& flat, const FlatSpan& place) {
  return flat.narrow(0, place.begin, place.size());
}

}  // namespace

absl::StatusOr<std::unique_ptr<AdamW>> AdamW::Create(const TrainingConfig& config,
                                                     const std::vector<const FlatParameters*>& stages,
                                                     const Shardings& shardings) {
  std::unique_ptr<AdamW> optimizer(new AdamW(config, shardings));
  PENSTOCK_RETURN_IF_ERROR(RunTorch("the optimizer's state", [&] {
    for (const FlatParameters* stage : stages) optimizer->stages_.push_back(optimizer->MakeState(*stage));
    optimizer->part_squares_.emplace(stages, shardings);
  }));
  return optimizer;
}

AdamW::StageState AdamW::MakeState(const FlatParameters& parameters) const {
  StageState stage = {.parameters = &parameters};
  for (const FlatSpan& span : parameters.spans) {
    const FlatSpan updated = UpdatedPart(span, shardings_);
    for (const NamedParameter& parameter : parameters.parameters) {
      const FlatSpan place = {std::max(updated.begin, parameter.offset),
                              std::min(updated.end, parameter.offset + parameter.value.numel())};
      if (place.size() <= 0) continue;
      stage.pieces.push_back(
          {.parameter = &parameter, .place = place, .state = stage.size + place.begin - updated.begin});
    }
    stage.size += updated.size();
  }
  std::ranges::sort(stage.pieces, {}, &Piece::state);
  const at::ScalarType accumulation = AccumulationType(parameters.values.scalar_type());
  const at::TensorOptions options = parameters.values.options().dtype(accumulation);
  stage.first_moment = at::zeros({stage.size}, options);
  stage.second_moment = at::zeros({stage.size}, options);
  if (parameters.values.scalar_type() == accumulation) return stage;
  stage.master = at::zeros({stage.size}, options);
  for (const Piece& piece : stage.pieces) {
    stage.master.narrow(0, piece.state, piece.place.size()).copy_(Part(parameters.values, piece.place));
  }
  return stage;
}

at::Device AdamW::device() const {
  return stages_.empty() ? at::kCPU : stages_.front().parameters->values.device();
}

absl::StatusOr<at::Tensor> AdamW::SumsOfSquares(Holders holders) const {
  const Sharding& sharding = shardings_.Of(holders);
  return CallTorch("the gradient norm", [&] {
    const auto count = static_cast<int64_t>(stages_.size());
    at::Tensor sums = at::zeros({count, sharding.count}, at::TensorOptions(at::kDouble).device(device()));
    for (int64_t i = 0; i < count; ++i) {
      const FlatParameters& parameters = *stages_[static_cast<size_t>(i)].parameters;
      for (int shard = 0; shard < sharding.count; ++shard) {
        if (!sharding.Updates(shard)) continue;
        for (size_t bucket = 0; bucket < parameters.buckets; ++bucket) {
          const FlatSpan& span = parameters.spans[bucket];
          if (span.holders != holders) continue;
          const FlatSpan place = ShardOfSpan(span, shard, sharding.count);
          for (const FlatSpan& counted : CountedSpans(parameters, place, sharding.tensor_rank))
            sums[i][shard].add_(FlatSumOfSquares(Part(parameters.gradients, counted)));
        }
      }
    }
    return sums;
  });
}

AdamWFactors AdamW::FactorsOf(uint64_t iteration, double gradient_scale) const {
  const auto step = static_cast<double>(iteration + 1);
  return {.beta1 = config_.beta1,
          .beta2 = config_.beta2,
          .epsilon = config_.epsilon,
          .first_correction = 1 - std::pow(config_.beta1, step),
          .second_correction = 1 - std::pow(config_.beta2, step),
          .rate = learning_rate(iteration),
          .weight_decay = config_.weight_decay,
          .gradient_scale = gradient_scale};
}

absl::Status AdamW::Step(uint64_t iteration, double gradient_scale) {
  PENSTOCK_ASSIGN_OR_RETURN(const StepScale scale, CallTorch("the optimizer step", [&] {
                              const at::TensorOptions options = at::TensorOptions().device(device());
                              return StepScale{
                                  .gradients = at::full({}, gradient_scale, options.dtype(at::kDouble)),
                                  .skip = at::zeros({}, options.dtype(at::kBool))};
                            }));
  return Step(iteration, scale);
}

absl::Status AdamW::Step(uint64_t iteration, const StepScale& scale) {
  return RunTorch("the optimizer step", [&] {
    const at::NoGradGuard no_gradients;
    if (!device().is_cpu()) {
      for (const StageState& stage : stages_) UpdateByLibTorch(stage, scale, iteration);
    } else if (!scale.skip.item<bool>()) {
      UpdateOnHost(FactorsOf(iteration, scale.gradients.item<double>()));
    }
  });
}

void AdamW::UpdateOnHost(const AdamWFactors& factors) {
  for (const StageState& stage : stages_) {
    if (stage.first_moment.scalar_type() == at::kDouble) {
      UpdateInOnePass<double>(stage, factors);
    } else {
      UpdateInOnePass<float>(stage, factors);
    }
  }
}

template <typename Float>
void AdamW::UpdateInOnePass(const StageState& stage, const AdamWFactors& factors) {
  AdamWFactors without_decay = factors;
  without_decay.weight_decay = 0;
  const FlatParameters& parameters = *stage.parameters;
  const bool rounds = stage.master.defined();
  auto* const first = stage.first_moment.mutable_data_ptr<Float>();
  auto* const second = stage.second_moment.mutable_data_ptr<Float>();
  const auto* const gradients = parameters.gradients.const_data_ptr<Float>();
  auto* const master = rounds ? stage.master.mutable_data_ptr<Float>() : nullptr;
  auto* const values = rounds ? nullptr : parameters.values.mutable_data_ptr<Float>();
  auto* const rounded = rounds ? parameters.values.mutable_data_ptr<at::BFloat16>() : nullptr;
  // Elements [begin, end) of the state, which lie in `piece`.
  const auto update = [&](const Piece& piece, int64_t begin, int64_t end) {
    const int64_t in_stage = piece.place.begin + begin - piece.state;
    UpdateWeights(piece.decays() ? factors : without_decay,
                  AdamWArrays<Float>{.weights = rounds ? master + begin : values + in_stage,
                                     .first_moments = first + begin,
                                     .second_moments = second + begin,
                                     .gradients = gradients + in_stage},
                  end - begin);
    if (!rounds) return;
    for (int64_t i = begin; i < end; ++i) {
      rounded[in_stage + i - begin] = at::BFloat16(static_cast<float>(master[i]));
    }
  };
  at::parallel_for(0, stage.size, kGrain, [&](int64_t begin, int64_t end) {
    const auto after = std::ranges::upper_bound(stage.pieces, begin, {}, &Piece::state);
    for (auto piece = after == stage.pieces.begin() ? after : after - 1;
         piece != stage.pieces.end() && piece->state < end; ++piece) {
      const int64_t piece_end = std::min(end, piece->state + piece->place.size());
      for (int64_t i = std::max(begin, piece->state); i < piece_end; i += kBlockOfUpdate) {
        update(*piece, i, std::min(piece_end, i + kBlockOfUpdate));
      }
    }
  });
}

void AdamW::UpdateByLibTorch(const StageState& stage, const StepScale& scale, uint64_t iteration) const {
  const FlatParameters& parameters = *stage.parameters;
  const at::Tensor step = at::full({}, static_cast<double>(iteration + 1),
                                   at::TensorOptions(at::kFloat).device(stage.first_moment.device()));
  // It divides by what it is given, and changes nothing where the other scalar is 1.
  const at::Tensor divisor = scale.gradients.reciprocal().to(at::kFloat);
  const at::Tensor skip = scale.skip.to(at::kFloat);
  for (const bool decays : {true, false}) {
    std::vector<at::Tensor> weights;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> first;
    std::vector<at::Tensor> second;
    for (const Piece& piece : stage.pieces) {
      if (piece.decays() != decays) continue;
      const FlatSpan state = {piece.state, piece.state + piece.place.size()};
      weights.push_back(stage.master.defined() ? Part(stage.master, state)
                                               : Part(parameters.values, piece.place));
      gradients.push_back(Part(parameters.gradients, piece.place));
      first.push_back(Part(stage.first_moment, state));
      second.push_back(Part(stage.second_moment, state));
    }
    // A share may be empty.
    if (weights.empty()) continue;
    const std::vector<at::Tensor> steps(weights.size(), step);
    at::_fused_adamw_(weights, gradients, first, second, /*max_exp_avg_sqs=*/{}, steps,
                      learning_rate(iteration), config_.beta1, config_.beta2,
                      decays ? config_.weight_decay : 0, config_.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false, divisor, skip);
  }
  if (!stage.master.defined()) return;
  for (const Piece& piece : stage.pieces) {
    Part(parameters.values, piece.place).copy_(stage.master.narrow(0, piece.state, piece.place.size()));
  }
}

double AdamW::learning_rate(uint64_t iteration) const {
  return LearningRateAt(config_.learning_rate, iteration);
}

TensorPiece AdamW::StatePiece(const Piece& piece, const char* kind, const at::Tensor& state) const {
  TensorSlice slice = SliceOf(*piece.parameter, sharding().tensor_rank);
  slice.name = kind + slice.name;
  return {.slice = std::move(slice),
          .begin = piece.place.begin - piece.parameter->offset,
          .values = state.narrow(0, piece.state, piece.place.size())};
}

template <typename Wanted>
std::vector<TensorPiece> AdamW::StateWhere(Wanted wanted) const {
  std::vector<TensorPiece> pieces;
  for (const StageState& stage : stages_) {
    for (const Piece& piece : stage.pieces) {
      if (!wanted(*piece.parameter)) continue;
      pieces.push_back(StatePiece(piece, "optimizer.first_moment.", stage.first_moment));
      pieces.push_back(StatePiece(piece, "optimizer.second_moment.", stage.second_moment));
      if (stage.master.defined()) pieces.push_back(StatePiece(piece, kMasterPrefix, stage.master));
    }
  }
  return pieces;
}

std::vector<TensorPiece> AdamW::State(bool with_copies) const {
  return StateWhere([&](const NamedParameter& parameter) { return with_copies || !parameter.copy; });
}

std::vector<TensorPiece> AdamW::StateOf(Holders holders) const {
  return StateWhere(
      [&](const NamedParameter& parameter) { return !parameter.copy && parameter.holders == holders; });
}

std::vector<TensorPiece> AdamW::Masters() const {
  std::vector<TensorPiece> pieces;
  for (const StageState& stage : stages_) {
    if (!stage.master.defined()) continue;
    for (const Piece& piece : stage.pieces) pieces.push_back(StatePiece(piece, kMasterPrefix, stage.master));
  }
  return pieces;
}

}  // namespace penstock::worker
