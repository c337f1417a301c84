#include <algorithm>

#include "absl/strings/str_cat.h"
#include "planner/core/audit/audit_plan.h"

namespace penstock::core {
namespace {

std::string Describe(uint64_t sample_id, uint32_t input_tokens, uint32_t target_tokens) {
  return absl::StrCat("sample_id ", sample_id, " of ", input_tokens, " and ", target_tokens, " tokens");
}

}  // namespace

std::vector<Violation> AuditSamples(const v1::Batch& batch, absl::Span<const ListedSample> samples) {
  std::vector<Violation> violations;
  const auto fail = [&](std::string message) {
    if (violations.size() < kMostListed) violations.push_back({kSamplesRule, -1, -1, std::move(message)});
  };
  const auto found = static_cast<size_t>(batch.samples_size());
  if (found != samples.size())
    fail(absl::StrCat("the batch has ", found, " samples, expected ", samples.size()));
  for (size_t i = 0; i < std::min(found, samples.size()); ++i) {
    const v1::Sample& sample = batch.samples(static_cast<int>(i));
    const ListedSample& listed = samples[i];
    if (sample.sample_id() == listed.sample_id && sample.input_tokens() == listed.input_tokens &&
        sample.target_tokens() == listed.target_tokens)
      continue;
    fail(absl::StrCat("batch.samples[", i, "] is ",
                      Describe(sample.sample_id(), sample.input_tokens(), sample.target_tokens()),
                      ", expected ", Describe(listed.sample_id, listed.input_tokens, listed.target_tokens)));
  }
  return violations;
}

}  // namespace penstock::core
