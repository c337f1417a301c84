#include "planner/cli/up/run_data.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/dataset/largest_token.h"
#include "common/hash/crc32.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/thousands.h"

namespace penstock::cli {
namespace {

// Samples whose tokens are looked at: enough to tell datasets apart, few enough for any size.
constexpr size_t kLookedAt = 1024;

uint32_t AddLength(const SampleLength& length, uint32_t crc32) {
  const uint32_t both[] = {length.input, length.target};
  return Crc32({reinterpret_cast<const char*>(both), sizeof(both)}, crc32);
}

void AddLearnt(const SampleLength& length, v1::Architecture architecture, CutSummary& summary) {
  const bool encoder_decoder = architecture == v1::ARCHITECTURE_T5;
  // A decoder alone predicts nothing of the first token that it sees.
  const uint32_t unpredicted = !encoder_decoder && length.input == 0 ? 1 : 0;
  const uint32_t learnt = length.target - std::min(length.target, unpredicted);
  summary.learnt_tokens += learnt;
  summary.samples_with_nothing_to_learn += learnt == 0;
  summary.samples_without_input += encoder_decoder && length.input == 0;
}

absl::StatusOr<uint32_t> ChecksumOf(const IndexedDataset& dataset) {
  uint32_t crc32 = 0;
  for (size_t i = 0; i < dataset.size(); ++i) crc32 = AddLength(dataset.Length(i), crc32);
  const size_t step = std::max<size_t>(1, dataset.size() / kLookedAt);
  for (size_t i = 0; i < dataset.size(); i += step) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, dataset.Tokens(i));
    crc32 = Crc32({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t)}, crc32);
  }
  return crc32;
}

}  // namespace

absl::StatusOr<CutSummary> RunData::SummarizeCut(const UpOptions& options,
                                                 v1::Architecture architecture) const {
  const SampleCut cut = CutOf(options, architecture);
  CutSummary summary;
  const auto add = [&](const SampleLength& length) {
    ++summary.samples;
    const uint64_t tokens = uint64_t{length.input} + length.target;
    summary.tokens += tokens;
    const std::optional<SampleLength> left = CutToLimits(length, cut.architecture, cut.limits);
    const uint64_t kept = left.has_value() ? uint64_t{left->input} + left->target : 0;
    summary.dropped_samples += !left.has_value();
    summary.cut_samples += left.has_value() && kept < tokens;
    summary.lost_tokens += tokens - kept;
    if (left.has_value()) AddLearnt(*left, cut.architecture, summary);
  };
  for (const SampleLength& row : rows_) add(row);
  for (size_t i = 0; dataset_ != nullptr && i < dataset_->size(); ++i) add(dataset_->Length(i));
  if (summary.dropped_samples < summary.samples) return summary;
  return absl::InvalidArgumentError(
      "--cut drop: every sample is longer than --max-length (--max-input, --max-target); raise it or cut "
      "them");
}

std::string DescribeCut(const CutSummary& summary) {
  const auto count = [](uint64_t number) { return WithThousands(static_cast<double>(number)); };
  std::string text = absl::StrCat("data: ", count(summary.samples), " samples, ", count(summary.tokens),
                                  " tokens, of which ", count(summary.learnt_tokens), " are learnt");
  if (summary.lost_tokens > 0) {
    const double share = 100 * static_cast<double>(summary.lost_tokens) / static_cast<double>(summary.tokens);
    absl::StrAppend(&text,
                    "; longer than --max-length (--max-input, --max-target): ", count(summary.cut_samples),
                    " are cut, ", count(summary.dropped_samples), " dropped, and ",
                    count(summary.lost_tokens), " tokens lost (", absl::StrFormat("%.1f", share), " %)");
  }
  if (summary.samples_with_nothing_to_learn > 0) {
    absl::StrAppend(&text, "\ndata: nothing is learnt of ", count(summary.samples_with_nothing_to_learn),
                    " samples: they have no target, or one token and no input");
  }
  if (summary.samples_without_input > 0) {
    absl::StrAppend(&text, "\ndata: ", count(summary.samples_without_input),
                    " samples have no input: the encoder reads nothing of them, and the decoder learns the "
                    "target alone");
  }
  return text;
}

absl::StatusOr<DataRecord> RunData::Describe(const UpOptions& options, v1::Architecture architecture) const {
  const LengthLimits limits = CutOf(options, architecture).limits;
  DataRecord record = {.samples = rows_.size(),
                       .global_batch = first_.size(),
                       .max_length = limits.max_length,
                       .max_input = limits.max_input,
                       .max_target = limits.max_target,
                       .cut = CutName(limits.cut)};
  for (const SampleLength& row : rows_) record.crc32 = AddLength(row, record.crc32);
  if (dataset_ == nullptr) return record;
  record.samples = dataset_->size();
  record.global_batch = options.global_batch;
  PENSTOCK_ASSIGN_OR_RETURN(record.crc32, ChecksumOf(*dataset_));
  return record;
}

absl::StatusOr<RunData> RunData::Open(const UpOptions& options) {
  RunData data;
  if (options.lengths.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(data.dataset_, IndexedDataset::Open(options.dataset));
    if (data.dataset_->size() > 0) return data;
    return absl::InvalidArgumentError(absl::StrCat("--dataset '", options.dataset, "' holds no sample"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(data.first_, ParseRows(options.rows));
  PENSTOCK_ASSIGN_OR_RETURN(data.rows_, ReadAllLengths(options.lengths));
  if (data.first_.last <= data.rows_.size()) return data;
  return absl::OutOfRangeError(
      absl::StrCat("--rows ", options.rows, ": '", options.lengths, "' has ", data.rows_.size(), " rows"));
}

absl::StatusOr<uint32_t> RunData::Vocab(const UpOptions& options) const {
  PENSTOCK_ASSIGN_OR_RETURN(const int32_t largest, LargestToken(*dataset_));
  const uint32_t least = static_cast<uint32_t>(largest) + 1;
  if (options.vocab == 0) return least;
  if (options.vocab >= least) return options.vocab;
  return absl::InvalidArgumentError(absl::StrCat("--vocab ", options.vocab, ": the dataset has token ",
                                                 least - 1, "; use ", least, " or more"));
}

absl::Status RunData::CheckVocab(absl::string_view flag, uint32_t vocab) const {
  PENSTOCK_ASSIGN_OR_RETURN(const int32_t largest, LargestToken(*dataset_));
  if (static_cast<uint32_t>(largest) < vocab) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(flag, ": its vocabulary has ", vocab,
                                                 " tokens, the dataset has token ", largest,
                                                 ": it was made with another tokenizer"));
}

absl::Status RunData::CheckValidation(const std::string& dataset, uint32_t vocab) {
  if (dataset.empty()) return absl::OkStatus();
  const absl::StatusOr<std::unique_ptr<IndexedDataset>> opened = IndexedDataset::Open(dataset);
  if (!opened.ok()) return AnnotateError(opened.status(), "--validation");
  if ((*opened)->size() == 0)
    return absl::InvalidArgumentError(absl::StrCat("--validation '", dataset, "' holds no sample"));
  PENSTOCK_ASSIGN_OR_RETURN(const int32_t largest, LargestToken(**opened));
  if (static_cast<uint32_t>(largest) < vocab) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--validation: it has token ", largest, ", and the model ",
                                                 vocab, " tokens: give --vocab ", largest + 1,
                                                 ", or make it with the same tokenizer"));
}

std::unique_ptr<BatchSource> RunData::MakeBatches(const UpOptions& options,
                                                  v1::Architecture architecture) const {
  const SampleCut cut = CutOf(options, architecture);
  if (dataset_ == nullptr) return RowBatches(rows_, first_, cut);
  return ShuffledBatches(*dataset_, {.global_batch = options.global_batch, .seed = options.seed, .cut = cut});
}

}  // namespace penstock::cli
