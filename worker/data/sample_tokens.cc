#include "worker/data/sample_tokens.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::worker {

absl::StatusOr<std::vector<int32_t>> SampleTokens(const IndexedDataset& dataset, uint64_t sample,
                                                  uint32_t input_tokens, uint32_t target_tokens,
                                                  InputCut cut) {
  if (sample >= dataset.size()) {
    return absl::InvalidArgumentError(absl::StrCat("sample ", sample, " is not in the dataset of ",
                                                   dataset.size(),
                                                   " samples: planner and worker must use the same dataset"));
  }
  const SampleLength length = dataset.Length(sample);
  if (input_tokens > length.input || target_tokens > length.target) {
    return absl::InvalidArgumentError(absl::StrCat("sample ", sample, " is planned with ", input_tokens,
                                                   " + ", target_tokens, " tokens, but the dataset has ",
                                                   length.input, " + ", length.target,
                                                   ": planner and worker must use the same dataset"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, dataset.Tokens(sample));
  const uint32_t surplus = length.input - input_tokens;
  const auto first = tokens.begin() + (cut == InputCut::kStart ? 0 : input_tokens);
  tokens.erase(first, first + surplus);
  tokens.resize(size_t{input_tokens} + target_tokens);
  return tokens;
}

}  // namespace penstock::worker
