#include "planner/core/contract/batch_from_proto.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "planner/core/contract/job_limits.h"
#include "planner/core/contract/limits.h"
#include "planner/core/contract/wrong_in_job.h"

namespace penstock::core {
namespace {

// A v1::Sample or v1::SampleLengths.
template <typename Lengths>
absl::StatusOr<SampleTokens> TokensOf(const Lengths& sample, const std::string& field, const Job& job) {
  const uint64_t input = sample.input_tokens();
  const uint64_t target = sample.target_tokens();
  if (input + target == 0) return Wrong(field, "has no tokens");
  const bool gpt = job.architecture == Architecture::kGpt;
  const uint64_t longest = gpt ? input + target : std::max(input, target);
  if (longest > job.max_sequence_length) {
    return Wrong(
        field, absl::StrCat(longest, " tokens; job.model.max_sequence_length is ", job.max_sequence_length));
  }
  SampleTokens tokens;
  tokens.source = gpt ? 0 : static_cast<uint32_t>(input);
  tokens.target = static_cast<uint32_t>(gpt ? input + target : target);
  // Without a prompt a GPT's first target token has no token before it.
  tokens.loss = static_cast<uint32_t>(gpt && input == 0 ? target - 1 : target);
  tokens.less_square = job.windows.LessSquare(tokens.target);
  return tokens;
}

// What samples say of the loss.
absl::Status CheckLoss(const v1::Batch& batch, const Job& job) {
  for (int i = 0; i < batch.samples_size(); ++i) {
    const v1::Sample& sample = batch.samples(i);
    const std::string field = absl::StrCat("batch.samples[", i, "]");
    if (!std::isfinite(sample.loss_weight()) || sample.loss_weight() < 0 ||
        sample.loss_weight() > kMostLossWeight) {
      return Wrong(absl::StrCat(field, ".loss_weight"),
                   absl::StrCat(sample.loss_weight(), "; use a number from 0 to ", kMostLossWeight));
    }
    if (sample.task() == 0 || static_cast<int64_t>(sample.task()) < job.tasks) continue;
    return Wrong(absl::StrCat(field, ".task"),
                 absl::StrCat(sample.task(), "; job.tasks has ", job.tasks, " names, the first is 0"));
  }
  return absl::OkStatus();
}

// Added in the order of the samples: whoever adds them again has the same bits.
double LossWeightOf(const v1::Batch& batch, const std::vector<SampleTokens>& samples) {
  double sum = 0;
  bool weighted = false;
  for (int i = 0; i < batch.samples_size(); ++i) {
    const v1::Sample& sample = batch.samples(i);
    weighted = weighted || sample.has_loss_weight();
    sum += sample.has_loss_weight() ? sample.loss_weight() : static_cast<double>(samples[i].loss);
  }
  return weighted ? sum : 0;
}

}  // namespace

absl::StatusOr<SampleTokens> SampleFromProto(const v1::Sample& sample, const std::string& field,
                                             const Job& job) {
  return TokensOf(sample, field, job);
}

absl::StatusOr<SampleTokens> SampleFromProto(const v1::SampleLengths& sample, const std::string& field,
                                             const Job& job) {
  return TokensOf(sample, field, job);
}

absl::StatusOr<Batch> BatchFromProto(const v1::Batch& proto, const Job& job) {
  if (proto.samples().empty()) return Wrong("batch.samples", "is empty");
  PENSTOCK_RETURN_IF_ERROR(CheckAtMost("batch.samples", proto.samples_size(), kMostSamples));
  const auto stages = static_cast<int64_t>(job.topology.shape().stages.size());
  if (proto.samples_size() * stages > kMostSampleStages) {
    return Wrong("batch.samples", absl::StrCat(proto.samples_size(), " on ", stages, " stages; use at most ",
                                               kMostSampleStages / stages, " on so many stages"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckLoss(proto, job));
  Batch batch;
  batch.iteration = proto.iteration();
  batch.samples.reserve(proto.samples_size());
  for (int i = 0; i < proto.samples_size(); ++i) {
    PENSTOCK_ASSIGN_OR_RETURN(const SampleTokens tokens,
                              SampleFromProto(proto.samples(i), absl::StrCat("batch.samples[", i, "]"), job));
    batch.samples.push_back(tokens);
  }
  batch.loss_weight = LossWeightOf(proto, batch.samples);
  return batch;
}

}  // namespace penstock::core
