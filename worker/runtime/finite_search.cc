#include "worker/runtime/finite_search.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/status/status_macros.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// Of what a rank says of itself: what it found + 1, stage, micro-batch.
constexpr int64_t kFields = 3;

bool IsFinite(const at::Tensor& tensor) {
  return !tensor.defined() || at::isfinite(tensor).all().item<bool>();
}

// The name of a gradient that is not finite; empty: all are.
std::string NotFiniteGradient(const std::vector<NamedParameter>& parameters) {
  for (const NamedParameter& parameter : parameters)
    if (!IsFinite(parameter.gradient)) return parameter.name;
  return "";
}

std::optional<Finding> First(const at::Tensor& said, const std::vector<uint32_t>& world) {
  std::optional<Finding> first;
  for (size_t i = 0; i < world.size(); ++i) {
    const double* fields = said.const_data_ptr<double>() + static_cast<int64_t>(i) * kFields;
    if (fields[0] == 0) continue;
    const Finding finding = {.what = static_cast<NotFinite>(static_cast<int>(fields[0]) - 1),
                             .rank = world[i],
                             .stage = static_cast<uint32_t>(fields[1]),
                             .micro_batch = static_cast<uint32_t>(fields[2])};
    first = first.has_value() ? std::min(*first, finding) : finding;
  }
  return first;
}

}  // namespace

std::string Describe(const Finding& finding) {
  const std::string rank = absl::StrCat("rank ", finding.rank, ": ");
  const std::string stage = absl::StrCat("stage ", finding.stage);
  const std::string place = absl::StrCat("micro-batch ", finding.micro_batch, " on ", stage);
  switch (finding.what) {
    case NotFinite::kParameter:
      return absl::StrCat(rank, "a parameter of ", stage, " was not finite before");
    case NotFinite::kOutput:
      return absl::StrCat(rank, "the output of ", place);
    case NotFinite::kLoss:
      return absl::StrCat(rank, "the loss of ", place);
    case NotFinite::kInputGradient:
      return absl::StrCat(rank, "the input gradient of ", place);
    case NotFinite::kGradient:
      return absl::StrCat(rank, "the gradients of ", place);
    case NotFinite::kSum:
      return absl::StrCat(rank, "the sum of the gradients of ", stage, " over the replicas");
    case NotFinite::kShare:
      return absl::StrCat(rank, "the sum of the gradients in its share of the parameters");
  }
  return rank;
}

// The log of the rank says what the others are not told.
void FiniteSearch::Found(NotFinite what, const BufferKey& key, const std::string& name) {
  if (found_.has_value()) return;
  found_ = Finding{.what = what, .rank = 0, .stage = key.stage, .micro_batch = key.micro_batch};
  LogError("a number is not finite",
           {{"stage", key.stage}, {"micro_batch", key.micro_batch}, {"tensor", name}});
}

absl::Status FiniteSearch::LookAtParameters() {
  return RunTorch("looking at the parameters", [&] {
    for (const auto& [number, stage] : stages_) {
      for (const NamedParameter& parameter : stage->parameters()) {
        if (!IsFinite(parameter.value)) Found(NotFinite::kParameter, {.stage = number}, parameter.name);
      }
    }
  });
}

bool FiniteSearch::AnyInGroup(bool own) {
  const GroupPlace place = group_.place();
  if (place.ranks() == 1) return own;
  const at::Device device = stages_.begin()->second->flat_parameters().values.device();
  const auto contexts = static_cast<size_t>(place.contexts);
  at::Tensor said = at::full({place.contexts}, own ? 1.0 : 0.0, at::TensorOptions(at::kFloat).device(device));
  group_.MaxOverTensorRanks(said);
  const std::vector<int64_t> one_each(contexts, 1);
  return group_.ExchangeRows(said, one_each, one_each).max().item<float>() > 0;
}

absl::Status FiniteSearch::AfterForward(const BufferKey& key, const at::Tensor& input,
                                        const at::Tensor& output, bool last) {
  return RunTorch("looking at an output", [&] {
    if (AnyInGroup(!IsFinite(input))) tainted_.insert(key.micro_batch);
    if (IsFinite(output) || !tainted_.insert(key.micro_batch).second) return;
    Found(last ? NotFinite::kLoss : NotFinite::kOutput, key, last ? "loss" : "output");
  });
}

absl::Status FiniteSearch::AfterBackward(const BufferKey& key, const at::Tensor& output_gradient,
                                         const at::Tensor& input_gradient) {
  return RunTorch("looking at gradients", [&] {
    if (AnyInGroup(!IsFinite(output_gradient))) tainted_.insert(key.micro_batch);
    const bool tainted = tainted_.contains(key.micro_batch);
    if (!IsFinite(input_gradient)) {
      if (!tainted) Found(NotFinite::kInputGradient, key, "input gradient");
      tainted_.insert(key.micro_batch);
    }
    if (spoilt_.contains(key.stage)) return;
    const std::string name = NotFiniteGradient(stages_.at(key.stage)->parameters());
    if (name.empty()) return;
    spoilt_.insert(key.stage);
    if (!tainted) Found(NotFinite::kGradient, key, name);
  });
}

absl::Status FiniteSearch::AfterSum(uint32_t stage, const Shardings& shardings) {
  return RunTorch("looking at the sum of gradients", [&] {
    if (spoilt_.contains(stage)) return;
    const FlatParameters& flat = stages_.at(stage)->flat_parameters();
    for (const FlatSpan& span : flat.spans) {
      const FlatSpan part = UpdatedPart(span, shardings);
      if (IsFinite(flat.gradients.narrow(0, part.begin, part.size()))) continue;
      return Found(NotFinite::kSum, {.stage = stage}, "sum of gradients");
    }
  });
}

absl::Status FiniteSearch::AfterReshard(const FlatParameters& share) {
  return RunTorch("looking at the sum of gradients", [&] {
    const std::string name = NotFiniteGradient(share.parameters);
    if (!name.empty()) Found(NotFinite::kShare, {}, name);
  });
}

absl::StatusOr<std::string> FiniteSearch::Conclude(uint32_t rank, const std::vector<uint32_t>& world,
                                                   Communicator& communicator, at::Device device) const {
  const auto self = std::find(world.begin(), world.end(), rank) - world.begin();
  std::vector<at::Tensor> tensors;
  PENSTOCK_RETURN_IF_ERROR(RunTorch("what was found", [&] {
    at::Tensor said = at::zeros({static_cast<int64_t>(world.size()) * kFields}, at::kDouble);
    if (found_.has_value()) {
      double* fields = said.data_ptr<double>() + self * kFields;
      fields[0] = static_cast<double>(found_->what) + 1;
      fields[1] = found_->stage;
      fields[2] = found_->micro_batch;
    }
    tensors.push_back(said.to(device));
  }));
  PENSTOCK_RETURN_IF_ERROR(communicator.AllReduceSum(tensors, world));
  PENSTOCK_ASSIGN_OR_RETURN(const auto first, CallTorch("what was found", [&] {
                              return First(tensors.front().to(at::kCPU), world);
                            }));
  if (first.has_value()) return Describe(*first);
  return "each gradient is finite, but not the sum of their squares";
}

}  // namespace penstock::worker
