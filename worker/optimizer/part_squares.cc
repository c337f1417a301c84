#include "worker/optimizer/part_squares.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/model/flat_parameters.h"
#include "worker/optimizer/flat_squares.h"
#include "worker/optimizer/parameter_slice.h"

namespace penstock::worker {
namespace {

// What all holders have and update alike is spoken for by the first of them; of copies of a shared parameter,
// whose gradients are the sum on every stage, by the stage that has the first.
bool SpeaksFor(const NamedParameter& parameter, const Sharding& sharding) {
  return !parameter.copy && (sharding.divided || sharding.own == 0);
}

// What of a parameter lies in a span of the flat buffers, by its own elements.
FlatSpan Within(const NamedParameter& parameter, const FlatSpan& span) {
  return {.begin = std::max<int64_t>(0, span.begin - parameter.offset),
          .end = std::min(parameter.value.numel(), span.end - parameter.offset)};
}

}  // namespace

bool PartSquares::Continues(const Run& run, const Run& next) {
  if (run.stage != next.stage || run.part != next.part) return false;
  if (!run.ends_parameter || !next.begins_parameter) return false;
  const int64_t gap = next.span.begin - run.span.end;
  // No other parameter is in a smaller gap.
  return gap >= 0 && gap * static_cast<int64_t>(run.stage->values.element_size()) < kParameterAlignmentBytes;
}

PartSquares::PartSquares(const std::vector<const FlatParameters*>& stages, const Shardings& shardings) {
  if (!stages.empty()) device_ = stages.front()->gradients.device();
  for (const FlatParameters* stage : stages) AddStage(*stage, shardings);
  for (const Run& run : runs_) parts_.push_back(run.part);
  std::ranges::sort(parts_);
  const auto repeated = std::ranges::unique(parts_);
  parts_.erase(repeated.begin(), repeated.end());
}

void PartSquares::AddStage(const FlatParameters& stage, const Shardings& shardings) {
  for (const FlatSpan& span : stage.spans) {
    const Sharding& sharding = shardings.Of(span.holders);
    const FlatSpan updated = UpdatedPart(span, sharding);
    for (const NamedParameter& parameter : stage.parameters) {
      const ModelPart part = PartOf(parameter.name);
      const FlatSpan own = Within(parameter, updated);
      if (own.size() <= 0 || part == ModelPart::kNone || !SpeaksFor(parameter, sharding)) continue;
      for (const FlatSpan& counted : CountedSpans(parameter.part, own, sharding.tensor_rank)) {
        if (counted.size() <= 0) continue;
        AddRun({.stage = &stage,
                .part = part,
                .span = {parameter.offset + counted.begin, parameter.offset + counted.end},
                .begins_parameter = counted.begin == 0,
                .ends_parameter = counted.end == parameter.value.numel()});
      }
    }
  }
}

// Whole neighbours of one part are one run: between them is what aligns the second, which is 0. So the
// experts of a layer are a few runs.
void PartSquares::AddRun(const Run& run) {
  if (!runs_.empty() && Continues(runs_.back(), run)) {
    runs_.back().span.end = run.span.end;
    runs_.back().ends_parameter = run.ends_parameter;
    return;
  }
  runs_.push_back(run);
}

at::Tensor PartSquares::OfGradients() const {
  at::Tensor sums = at::zeros({kModelParts}, at::TensorOptions(at::kDouble).device(device_));
  for (const Run& run : runs_) {
    const at::Tensor gradients = run.stage->gradients.narrow(0, run.span.begin, run.span.size());
    sums[static_cast<int64_t>(run.part)].add_(FlatSumOfSquares(gradients));
  }
  return sums;
}

}  // namespace penstock::worker
