#include "planner/cli/up/run_data.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/dataset/dataset_tokenizer.h"
#include "common/dataset/largest_token.h"
#include "common/hash/crc32.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/thousands.h"
#include "planner/cli/up/rank_validation.h"

namespace penstock::cli {
namespace {

// Samples whose tokens are looked at: enough to tell datasets apart, few enough for any size.
constexpr size_t kLookedAt = 1024;

uint32_t AddLength(const SampleLength& length, uint32_t crc32) {
  const uint32_t both[] = {length.input, length.target};
  return Crc32({reinterpret_cast<const char*>(both), sizeof(both)}, crc32);
}

// `loss`: null where its dataset has no weights.
void AddLearnt(const SampleLength& length, v1::Architecture architecture, const SampleLoss* loss,
               CutSummary& summary) {
  const uint32_t learnt = loss != nullptr ? loss->learnt : LearntTokens(length, architecture);
  summary.learnt_tokens += learnt;
  summary.samples_with_nothing_to_learn += learnt == 0;
  summary.samples_without_input += architecture == v1::ARCHITECTURE_T5 && length.input == 0;
}

void AddToSummary(const SampleLength& length, const SampleCut& cut, const SampleLoss* loss,
                  CutSummary& summary) {
  ++summary.samples;
  const uint64_t tokens = uint64_t{length.input} + length.target;
  summary.tokens += tokens;
  const std::optional<SampleLength> left = CutToLimits(length, cut.architecture, cut.limits);
  const uint64_t kept = left.has_value() ? uint64_t{left->input} + left->target : 0;
  summary.dropped_samples += !left.has_value();
  summary.cut_samples += left.has_value() && kept < tokens;
  summary.lost_tokens += tokens - kept;
  if (left.has_value()) AddLearnt(*left, cut.architecture, loss, summary);
}

// `of`: " of 'data/code'", where there are several datasets.
absl::Status CheckSomeAreLeft(const CutSummary& summary, absl::string_view of) {
  if (summary.dropped_samples < summary.samples) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--cut drop: every sample", of,
                                                 " is longer than --max-length (--max-input, --max-target); "
                                                 "raise it or cut them"));
}

// Data for a decoder alone beside an encoder-decoder's is a mistake; alone it may be what is wanted.
absl::Status CheckInputs(const DataTask& task, const CutSummary& summary) {
  if (summary.samples_without_input < summary.samples - summary.dropped_samples) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--mix: no sample of '", task.path, "' (", task.name,
                                                 ") has an input, which an encoder-decoder reads: it is data "
                                                 "for a decoder alone (GPT). Leave it out, or "
                                                 "import it as {\"input\": [...], \"target\": [...]}"));
}

absl::StatusOr<uint32_t> ChecksumOf(const IndexedDataset& dataset, uint32_t crc32) {
  for (size_t i = 0; i < dataset.size(); ++i) crc32 = AddLength(dataset.Length(i), crc32);
  const size_t step = std::max<size_t>(1, dataset.size() / kLookedAt);
  for (size_t i = 0; i < dataset.size(); i += step) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, dataset.Tokens(i));
    crc32 = Crc32({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t)}, crc32);
    if (!dataset.has_weights()) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<float> weights, dataset.TargetWeights(i));
    crc32 = Crc32({reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float)}, crc32);
  }
  return crc32;
}

}  // namespace

CutSummary& operator+=(CutSummary& sum, const CutSummary& other) {
  sum.samples += other.samples;
  sum.tokens += other.tokens;
  sum.cut_samples += other.cut_samples;
  sum.dropped_samples += other.dropped_samples;
  sum.lost_tokens += other.lost_tokens;
  sum.learnt_tokens += other.learnt_tokens;
  sum.samples_with_nothing_to_learn += other.samples_with_nothing_to_learn;
  sum.samples_without_input += other.samples_without_input;
  return sum;
}

absl::StatusOr<CutSummary> RunData::SummarizeTask(const DataTask& task, const SampleCut& cut) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto losses, task.losses->Of(*task.dataset, cut));
  CutSummary summary;
  for (size_t i = 0; i < task.dataset->size(); ++i)
    AddToSummary(task.dataset->Length(i), cut, losses != nullptr ? &(*losses)[i] : nullptr, summary);
  return summary;
}

absl::StatusOr<CutSummary> RunData::SummarizeCut(const UpOptions& options,
                                                 v1::Architecture architecture) const {
  const SampleCut cut = CutOf(options, architecture);
  CutSummary summary;
  for (const SampleLength& row : rows_) AddToSummary(row, cut, nullptr, summary);
  for (const DataTask& task : tasks_) {
    PENSTOCK_ASSIGN_OR_RETURN(const CutSummary of_task, SummarizeTask(task, cut));
    if (tasks_.size() > 1) {
      PENSTOCK_RETURN_IF_ERROR(CheckSomeAreLeft(of_task, absl::StrCat(" of '", task.path, "'")));
      PENSTOCK_RETURN_IF_ERROR(CheckInputs(task, of_task));
    }
    summary += of_task;
  }
  PENSTOCK_RETURN_IF_ERROR(CheckSomeAreLeft(summary, ""));
  return summary;
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
    absl::StrAppend(
        &text, "\ndata: nothing is learnt of ", count(summary.samples_with_nothing_to_learn),
        " samples: they have no target, or one token and no input, or their tokens weigh nothing");
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
  if (tasks_.empty()) return record;
  record.samples = samples();
  record.global_batch = options.global_batch;
  for (const DataTask& task : tasks_) {
    PENSTOCK_ASSIGN_OR_RETURN(record.crc32, ChecksumOf(*task.dataset, record.crc32));
  }
  for (const MixtureTask& task : options.mix)
    record.mix.push_back({.task = task.dataset.name, .weight = task.weight});
  return record;
}

absl::Status RunData::OpenTasks(const UpOptions& options) {
  mixed_ = !options.mix.empty();
  std::vector<MixtureTask> tasks = options.mix;
  if (!mixed_) tasks = {{.dataset = {.name = options.dataset, .path = options.dataset}, .weight = 1}};
  double sum = 0;
  for (const MixtureTask& task : tasks) sum += task.weight;
  for (const auto& [named, weight] : tasks) {
    absl::StatusOr<std::unique_ptr<IndexedDataset>> dataset = IndexedDataset::Open(named.path);
    if (!dataset.ok()) return mixed_ ? AnnotateError(dataset.status(), "--mix") : dataset.status();
    if ((*dataset)->size() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(mixed_ ? "--mix" : "--dataset", " '", named.path, "' holds no sample"));
    }
    tasks_.push_back({named.name, weight / sum, named.path, *std::move(dataset)});
  }
  return CheckTokenizers();
}

absl::Status RunData::CheckTokenizers() const {
  std::vector<PlacedDataset> datasets;
  for (const DataTask& task : tasks_) datasets.push_back({task.path, task.dataset.get()});
  return AnnotateError(CheckSameTokenizer(datasets), "--mix");
}

absl::StatusOr<RunData> RunData::Open(const UpOptions& options) {
  RunData data;
  if (options.lengths.empty()) {
    PENSTOCK_RETURN_IF_ERROR(data.OpenTasks(options));
    return data;
  }
  PENSTOCK_ASSIGN_OR_RETURN(data.first_, ParseRows(options.rows));
  PENSTOCK_ASSIGN_OR_RETURN(data.rows_, ReadAllLengths(options.lengths));
  if (data.first_.last <= data.rows_.size()) return data;
  return absl::OutOfRangeError(
      absl::StrCat("--rows ", options.rows, ": '", options.lengths, "' has ", data.rows_.size(), " rows"));
}

uint64_t RunData::samples() const {
  uint64_t samples = rows_.size();
  for (const DataTask& task : tasks_) samples += task.dataset->size();
  return samples;
}

absl::StatusOr<std::vector<TaskOutlook>> RunData::OutlookOfTasks(const SampleCut& cut) const {
  std::vector<TaskOutlook> outlook;
  if (!mixed_) return outlook;
  for (const DataTask& task : tasks_) {
    PENSTOCK_ASSIGN_OR_RETURN(const CutSummary summary, SummarizeTask(task, cut));
    outlook.push_back({.name = task.name,
                       .share = task.share,
                       .samples = summary.samples,
                       .dropped_samples = summary.dropped_samples,
                       .tokens = summary.tokens});
  }
  return outlook;
}

std::vector<TaskEnd> RunData::TaskEnds() const {
  std::vector<TaskEnd> ends;
  uint64_t end = 0;
  if (!mixed_) return ends;
  for (const DataTask& task : tasks_)
    ends.push_back({.task = task.name, .sample_id = end += task.dataset->size()});
  return ends;
}

absl::StatusOr<uint32_t> RunData::Vocab(const UpOptions& options) const {
  uint32_t least = 0;
  for (const DataTask& task : tasks_) {
    PENSTOCK_ASSIGN_OR_RETURN(const int32_t largest, LargestToken(*task.dataset));
    least = std::max(least, static_cast<uint32_t>(largest) + 1);
  }
  if (options.vocab == 0) return least;
  if (options.vocab >= least) return options.vocab;
  return absl::InvalidArgumentError(absl::StrCat("--vocab ", options.vocab, ": the dataset has token ",
                                                 least - 1, "; use ", least, " or more"));
}

absl::Status RunData::CheckVocab(absl::string_view flag, uint32_t vocab) const {
  for (const DataTask& task : tasks_) {
    PENSTOCK_ASSIGN_OR_RETURN(const int32_t largest, LargestToken(*task.dataset));
    if (static_cast<uint32_t>(largest) < vocab) continue;
    return absl::InvalidArgumentError(absl::StrCat(flag, ": its vocabulary has ", vocab,
                                                   " tokens, the dataset '", task.path, "' has token ",
                                                   largest, ": it was made with another tokenizer"));
  }
  return absl::OkStatus();
}

absl::Status RunData::CheckValidation(const std::vector<NamedDataset>& datasets, uint32_t vocab) {
  for (const NamedDataset& dataset : datasets) {
    const absl::StatusOr<std::unique_ptr<IndexedDataset>> opened = IndexedDataset::Open(dataset.path);
    if (!opened.ok()) return AnnotateError(opened.status(), "--validation");
    if ((*opened)->size() == 0)
      return absl::InvalidArgumentError(absl::StrCat("--validation '", dataset.path, "' holds no sample"));
    PENSTOCK_ASSIGN_OR_RETURN(const int32_t largest, LargestToken(**opened));
    if (static_cast<uint32_t>(largest) < vocab) continue;
    return absl::InvalidArgumentError(absl::StrCat("--validation: '", dataset.path, "' has token ", largest,
                                                   ", and the model ", vocab, " tokens: give --vocab ",
                                                   largest + 1, ", or make it with the same tokenizer"));
  }
  return absl::OkStatus();
}

std::vector<std::string> RunData::TaskNames() const {
  std::vector<std::string> names;
  if (!mixed_) return names;
  for (const DataTask& task : tasks_) names.push_back(task.name);
  return names;
}

std::vector<std::string> RunData::JobTasks(const UpOptions& options) const {
  std::vector<std::string> validation;
  for (const NamedDataset& dataset : options.validation) validation.push_back(dataset.name);
  return ValidatesOnRanks(options) ? TasksWithValidation(TaskNames(), validation) : TaskNames();
}

absl::StatusOr<v1::Batch> RunData::MakeValidation(const UpOptions& options,
                                                  v1::Architecture architecture) const {
  const std::vector<std::string> tasks = JobTasks(options);
  std::vector<std::unique_ptr<IndexedDataset>> opened;
  std::vector<ValidationData> datasets;
  for (const NamedDataset& dataset : options.validation) {
    absl::StatusOr<std::unique_ptr<IndexedDataset>> of = IndexedDataset::Open(dataset.path);
    if (!of.ok()) return AnnotateError(of.status(), "--validation");
    opened.push_back(*std::move(of));
    const auto task = std::ranges::find(tasks, dataset.name) - tasks.begin();
    datasets.push_back({.path = dataset.path,
                        .dataset = opened.back().get(),
                        .task = options.validation.size() < 2 ? 0 : static_cast<uint32_t>(task)});
  }
  return ValidationBatch(
      datasets,
      {.samples = options.validation_samples, .first_id = samples(), .cut = CutOf(options, architecture)});
}

absl::StatusOr<std::vector<std::shared_ptr<const SampleLosses>>> RunData::LossesOfTasks(
    const SampleCut& cut) const {
  std::vector<std::shared_ptr<const SampleLosses>> losses(tasks_.size());
  const auto has_weights = [](const DataTask& task) { return task.dataset->has_weights(); };
  if (std::ranges::none_of(tasks_, has_weights)) return losses;
  // The loss of a batch is divided by weights or by positions: all samples have weights, or none.
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const DataTask& task = tasks_[i];
    PENSTOCK_ASSIGN_OR_RETURN(losses[i], task.losses->Of(*task.dataset, cut));
    if (losses[i] != nullptr) continue;
    PENSTOCK_ASSIGN_OR_RETURN(SampleLosses ones, ReadSampleLosses(*task.dataset, cut));
    losses[i] = std::make_shared<const SampleLosses>(std::move(ones));
  }
  return losses;
}

absl::StatusOr<std::unique_ptr<BatchSource>> RunData::MakeBatches(const UpOptions& options,
                                                                  v1::Architecture architecture) const {
  const SampleCut cut = CutOf(options, architecture);
  if (tasks_.empty()) return RowBatches(rows_, first_, cut);
  PENSTOCK_ASSIGN_OR_RETURN(const auto losses, LossesOfTasks(cut));
  std::vector<WeightedDataset> datasets;
  for (size_t i = 0; i < tasks_.size(); ++i)
    datasets.push_back({.dataset = tasks_[i].dataset.get(), .weight = tasks_[i].share, .losses = losses[i]});
  return MixedBatches(datasets, {.global_batch = options.global_batch, .seed = options.seed, .cut = cut});
}

absl::StatusOr<std::unique_ptr<BatchSource>> RunData::MakeFedBatches(const UpOptions& options,
                                                                     v1::Architecture architecture,
                                                                     uint64_t iterations) const {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<BatchSource> batches, MakeBatches(options, architecture));
  if (!ValidatesOnRanks(options)) return batches;
  PENSTOCK_ASSIGN_OR_RETURN(v1::Batch validation, MakeValidation(options, architecture));
  return std::make_unique<ValidatedBatches>(
      std::move(batches), std::move(validation),
      ValidationTimes{.every = options.validate_every, .iterations = iterations});
}

absl::StatusOr<LearntOf> RunData::MakeLearntCounter(const UpOptions& options,
                                                    v1::Architecture architecture) const {
  LearntOf by_length = LearntByLength(architecture);
  if (tasks_.empty()) return by_length;
  PENSTOCK_ASSIGN_OR_RETURN(const auto losses, LossesOfTasks(CutOf(options, architecture)));
  if (losses.front() == nullptr) return by_length;
  // By the ids of joined datasets (common/dataset/joined_dataset.h).
  return [losses](const v1::Sample& sample) -> uint32_t {
    uint64_t id = sample.sample_id();
    for (const auto& of_task : losses) {
      if (id < of_task->size()) return (*of_task)[id].learnt;
      id -= of_task->size();
    }
    return 0;
  };
}

}  // namespace penstock::cli
