#include "planner/core/calibrate/passes_from_proto.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/batch_from_proto.h"

namespace penstock::core {
namespace {

absl::Status WrongPass(int index, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("passes[", index, "].", what));
}

absl::StatusOr<TokenSums> SumsOfPass(int index, const v1::MeasuredPass& pass, const Job& job) {
  if (pass.layout() != v1::LAYOUT_PACKED && pass.layout() != v1::LAYOUT_PADDED)
    return WrongPass(index, "layout: PADDED or PACKED");
  v1::Batch samples;
  for (const v1::SampleLengths& lengths : pass.samples()) {
    v1::Sample* const sample = samples.add_samples();
    sample->set_input_tokens(lengths.input_tokens());
    sample->set_target_tokens(lengths.target_tokens());
  }
  const absl::StatusOr<Batch> batch = BatchFromProto(samples, job);
  if (!batch.ok()) return WrongPass(index, absl::StrCat("samples: ", batch.status().message()));
  std::vector<uint32_t> all(batch->samples.size());
  std::iota(all.begin(), all.end(), 0);
  return SumsOf(all, batch->samples, pass.layout() == v1::LAYOUT_PADDED ? Layout::kPadded : Layout::kPacked);
}

bool SamePlace(const v1::MeasuredPass& input, const v1::MeasuredPass& weight) {
  if (input.stage() != weight.stage() || input.samples_size() != weight.samples_size()) return false;
  for (int i = 0; i < input.samples_size(); ++i) {
    if (input.samples(i).input_tokens() != weight.samples(i).input_tokens() ||
        input.samples(i).target_tokens() != weight.samples(i).target_tokens())
      return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::vector<MeasuredPass>> PassesFromProto(
    const google::protobuf::RepeatedPtrField<v1::MeasuredPass>& passes, const CostModel& costs,
    const Job& job) {
  std::vector<MeasuredPass> result;
  for (int i = 0; i < passes.size(); ++i) {
    const v1::MeasuredPass& pass = passes.Get(i);
    if (pass.stage() >= static_cast<uint32_t>(costs.stages()))
      return WrongPass(i, absl::StrCat("stage: ", pass.stage(), "; the job has ", costs.stages(), " stages"));
    MeasuredPass measured;
    measured.stage = static_cast<int>(pass.stage());
    PENSTOCK_ASSIGN_OR_RETURN(measured.sums, SumsOfPass(i, pass, job));
    const Stage& stage = costs.stage(measured.stage);
    const uint64_t recomputed =
        uint64_t{pass.recompute().selective_layers()} + pass.recompute().full_layers();
    if (recomputed > static_cast<uint64_t>(stage.layers()))
      return WrongPass(i, absl::StrCat("recompute: ", recomputed, " layers; the stage has ", stage.layers()));
    measured.recompute = {.selective = static_cast<int32_t>(pass.recompute().selective_layers()),
                          .full = static_cast<int32_t>(pass.recompute().full_layers())};
    measured.duration_ns = static_cast<double>(pass.duration_ns());
    if (pass.op() == v1::OP_BACKWARD_INPUT) {
      if (i + 1 == passes.size() || passes.Get(i + 1).op() != v1::OP_BACKWARD_WEIGHT ||
          !SamePlace(pass, passes.Get(i + 1)))
        return WrongPass(
            i, "op: BACKWARD_INPUT is to be followed by BACKWARD_WEIGHT of the same stage and samples");
      measured.kind = MeasuredKind::kBackward;
      measured.duration_ns += static_cast<double>(passes.Get(i + 1).duration_ns());
    } else if (pass.op() == v1::OP_BACKWARD) {
      measured.kind = MeasuredKind::kBackward;
    } else if (pass.op() == v1::OP_BACKWARD_WEIGHT) {
      measured.kind = MeasuredKind::kBackwardWeight;
    } else if (pass.op() != v1::OP_FORWARD) {
      return WrongPass(i, "op: FORWARD, BACKWARD, BACKWARD_INPUT or BACKWARD_WEIGHT");
    }
    result.push_back(measured);
  }
  return result;
}

}  // namespace penstock::core
