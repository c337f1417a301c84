// `penstock dataset`: makes and shows token datasets.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/dataset/import.h"
#include "common/dataset/indexed_dataset.h"
#include "common/dataset/largest_token.h"
#include "common/dataset/length_statistics.h"
#include "common/files/files.h"
#include "common/parallel/task_pool.h"
#include "common/process/binary_folder.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/commands.h"
#include "planner/cli/plan_summary.h"
#include "planner/cli/text_table.h"
#include "planner/cli/tokenizer/model_tokenizer.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ImportFlags {
  std::vector<std::string> paths;
  std::string out;
  ImportOptions options;
  // Empty: bytes are tokens.
  std::string tokenizer;
  // 0: the cores of this machine.
  uint32_t threads = 0;
  bool json = false;
};

struct ShowFlags {
  std::string prefix;
  std::string csv;
  bool json = false;
};

// One for each thread; none without --tokenizer.
absl::StatusOr<std::vector<std::unique_ptr<TokenizerProcess>>> StartTokenizers(const ImportFlags& flags) {
  std::vector<std::unique_ptr<TokenizerProcess>> tokenizers;
  if (flags.tokenizer.empty()) return tokenizers;
  const uint32_t threads = flags.threads > 0 ? flags.threads : static_cast<uint32_t>(DefaultThreads());
  for (uint32_t i = 0; i < threads; ++i) {
    absl::StatusOr<std::unique_ptr<TokenizerProcess>> tokenizer = StartTokenizer(flags.tokenizer);
    if (!tokenizer.ok()) return AnnotateError(tokenizer.status(), "--tokenizer");
    tokenizers.push_back(*std::move(tokenizer));
  }
  return tokenizers;
}

// Empty where this build has none, or it is not beside this program.
std::string ParquetProgram() {
  const std::string program = absl::StrCat(BinaryFolder().value_or("."), "/penstock-parquet");
  std::error_code ignored;
  return std::filesystem::exists(program, ignored) ? program : "";
}

absl::Status CheckValidation(const ImportFlags& flags) {
  const ImportOptions& options = flags.options;
  if (options.validation_share == 0 && !options.validation_prefix.empty())
    return absl::InvalidArgumentError(
        "--validation-out: without --validation-share nothing goes there; give both");
  if (options.validation_share < 0 || options.validation_share >= 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--validation-share ", options.validation_share, ": use a number above 0 and below 1"));
  }
  if (options.validation_prefix == flags.out)
    return absl::InvalidArgumentError("--validation-out: is --out; give another path");
  return absl::OkStatus();
}

absl::Status RunImport(const ImportFlags& flags) {
  const TextSectionOptions& sections = flags.options.sections;
  if (sections.min_bytes > sections.max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("--min-section ", sections.min_bytes,
                                                   ": --max-section is ", sections.max_bytes,
                                                   ", give one that is not above it"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckValidation(flags));
  PENSTOCK_ASSIGN_OR_RETURN(const auto tokenizers, StartTokenizers(flags));
  ImportOptions options = flags.options;
  if (options.validation_prefix.empty()) options.validation_prefix = absl::StrCat(flags.out, "-validation");
  options.parquet_program = ParquetProgram();
  for (const auto& tokenizer : tokenizers) options.tokenizers.push_back(tokenizer.get());
  PENSTOCK_ASSIGN_OR_RETURN(const ImportSummary summary, ImportDataset(flags.paths, flags.out, options));
  if (flags.json) {
    std::cout << DumpJson({{"samples", summary.samples},
                           {"input_tokens", summary.input_tokens},
                           {"target_tokens", summary.target_tokens},
                           {"predicted_tokens", summary.predicted_tokens},
                           {"weighted_samples", summary.weighted_samples},
                           {"split_conversations", summary.split_conversations},
                           {"validation_samples", summary.validation_samples},
                           {"validation_tokens", summary.validation_tokens},
                           {"largest_token", summary.largest_token},
                           {"files", summary.files},
                           {"skipped_files", summary.skipped_files}})
              << "\n";
    return absl::OkStatus();
  }
  std::cout << "imported " << summary.samples << " samples, " << summary.input_tokens + summary.target_tokens
            << " tokens (" << summary.target_tokens << " in targets; a GPT learns "
            << summary.predicted_tokens << " of them) from " << summary.files << " files to '" << flags.out
            << ".idx' and '.bin'; the vocabulary needs at least " << summary.largest_token + 1 << " ids\n";
  if (summary.validation_samples > 0) {
    std::cout << "for validation " << summary.validation_samples << " samples, " << summary.validation_tokens
              << " tokens, to '" << options.validation_prefix << ".idx' and '.bin'\n";
  }
  if (summary.weighted_samples > 0) {
    std::cout << "weights in '" << flags.out << ".weights': tokens of " << summary.weighted_samples
              << " samples are masked in part, or weigh more or less than 1\n";
  }
  if (summary.split_conversations > 0) {
    std::cout << "a sample for each answer of " << summary.split_conversations
              << " conversations: the chat template writes earlier answers otherwise when more follows\n";
  }
  if (summary.skipped_files > 0)
    std::cout << "skipped " << summary.skipped_files << " files that are empty or not text\n";
  return absl::OkStatus();
}

struct DatasetInfo {
  uint64_t samples_with_input = 0;
  uint64_t input_tokens = 0;
  uint64_t target_tokens = 0;
  // Of target tokens: those that weigh nothing in the loss, and the sum of all weights.
  uint64_t masked_tokens = 0;
  double weight = 0;
  int32_t largest_token = 0;
};

absl::StatusOr<DatasetInfo> Scan(const IndexedDataset& dataset) {
  DatasetInfo info;
  for (size_t i = 0; i < dataset.size(); ++i) {
    const SampleLength length = dataset.Length(i);
    info.samples_with_input += length.input > 0 ? 1 : 0;
    info.input_tokens += length.input;
    info.target_tokens += length.target;
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<float> weights, dataset.TargetWeights(i));
    for (const float weight : weights) {
      info.masked_tokens += weight == 0;
      info.weight += double{weight};
    }
  }
  PENSTOCK_ASSIGN_OR_RETURN(info.largest_token, LargestToken(dataset));
  return info;
}

std::string WeightsText(const IndexedDataset& dataset, const DatasetInfo& info) {
  if (!dataset.has_weights()) return "none: each target token weighs 1";
  return absl::StrCat(info.masked_tokens, " target tokens are masked, all weigh ", info.weight, " together");
}

absl::Status RunInfo(const ShowFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<IndexedDataset> dataset,
                            IndexedDataset::Open(flags.prefix));
  PENSTOCK_ASSIGN_OR_RETURN(const DatasetInfo info, Scan(*dataset));
  const std::string type = dataset->bytes_per_token() == 2 ? "uint16" : "int32";
  if (flags.json) {
    std::cout << DumpJson({{"samples", dataset->size()},
                           {"samples_with_input", info.samples_with_input},
                           {"input_tokens", info.input_tokens},
                           {"target_tokens", info.target_tokens},
                           {"weights", dataset->has_weights()},
                           {"masked_tokens", info.masked_tokens},
                           {"weight", info.weight},
                           {"dtype", type},
                           {"largest_token", info.largest_token}})
              << "\n";
    return absl::OkStatus();
  }
  std::cout << "samples        " << dataset->size() << " (" << info.samples_with_input << " with an input)\n"
            << "input tokens   " << info.input_tokens << "\n"
            << "target tokens  " << info.target_tokens << "\n"
            << "weights        " << WeightsText(*dataset, info) << "\n"
            << "stored as      " << type << "\n"
            << "largest token  " << info.largest_token << "\n";
  return absl::OkStatus();
}

std::string ToCsv(const IndexedDataset& dataset) {
  std::string text = "input_tokens,target_tokens\n";
  for (size_t i = 0; i < dataset.size(); ++i)
    absl::StrAppend(&text, dataset.Length(i).input, ",", dataset.Length(i).target, "\n");
  return text;
}

Json ToJson(const LengthStatistics& statistics) {
  Json quantiles = Json::array(), histogram = Json::array();
  for (const LengthQuantile& quantile : statistics.quantiles)
    quantiles.push_back({{"fraction", quantile.fraction}, {"tokens", quantile.tokens}});
  for (const LengthClass& entry : statistics.histogram)
    histogram.push_back(
        {{"first", entry.first}, {"last", entry.last}, {"samples", entry.samples}, {"tokens", entry.tokens}});
  return {{"samples", statistics.samples},
          {"tokens", statistics.tokens},
          {"mean", statistics.mean},
          {"quantiles", quantiles},
          {"histogram", histogram}};
}

void PrintStatistics(const LengthStatistics& statistics) {
  constexpr double kBarWidth = 50;
  std::cout << statistics.samples << " samples, " << statistics.tokens << " tokens, mean "
            << Fixed(statistics.mean, 1) << "\n\n";
  TextTable quantiles({"quantile", "tokens"});
  for (const LengthQuantile& quantile : statistics.quantiles)
    quantiles.AddRow({absl::StrFormat("%g%%", 100 * quantile.fraction), absl::StrCat(quantile.tokens)});
  std::cout << quantiles.ToString() << "\n";
  uint64_t most = 1;
  for (const LengthClass& entry : statistics.histogram) most = std::max(most, entry.samples);
  for (const LengthClass& entry : statistics.histogram) {
    const double width = kBarWidth * static_cast<double>(entry.samples) / static_cast<double>(most);
    const auto marks = static_cast<size_t>(width + 0.5);
    std::cout << absl::StrFormat("%10d to %-10d %9d  ", entry.first, entry.last, entry.samples)
              << std::string(marks, '#') << "\n";
  }
}

absl::Status RunLengths(const ShowFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<IndexedDataset> dataset,
                            IndexedDataset::Open(flags.prefix));
  if (!flags.csv.empty()) PENSTOCK_RETURN_IF_ERROR(WriteFileAtomically(flags.csv, ToCsv(*dataset)));
  std::vector<uint32_t> lengths;
  for (size_t i = 0; i < dataset->size(); ++i)
    lengths.push_back(dataset->Length(i).input + dataset->Length(i).target);
  const LengthStatistics statistics = SummarizeLengths(std::move(lengths));
  if (flags.json)
    std::cout << DumpJson(ToJson(statistics)) << "\n";
  else
    PrintStatistics(statistics);
  return absl::OkStatus();
}

void AddImport(CommandSet& commands, CLI::App* parent) {
  static const auto& formats = *new std::map<std::string, ImportFormat>{{"auto", ImportFormat::kAuto},
                                                                        {"jsonl", ImportFormat::kJsonLines},
                                                                        {"parquet", ImportFormat::kParquet},
                                                                        {"text", ImportFormat::kText}};
  auto flags = std::make_shared<ImportFlags>();
  CLI::App* command = commands.Add(
      {.name = "import",
       .purpose = "Makes a dataset from JSONL (plain or gzip), Parquet, or text, of files and folders",
       .examples =
           "penstock dataset import train.jsonl.gz --out data/train\n"
           "penstock dataset import --out data/docs README.md docs src\n"
           "penstock dataset import shards/ --format parquet --tokenizer models/qwen --out data/mix\n"
           "penstock dataset import chats.jsonl --tokenizer models/qwen --out data/chats\n\n"
           "Lines of JSONL: {\"tokens\": [...]} (and \"labels\", \"loss_mask\" or \"weights\", one for "
           "each), "
           "{\"input\": [...], \"target\": [...]} (the target is "
           "learnt) or\n"
           "{\"text\": \"...\"} (bytes as tokens). Text files: bytes as tokens, a sample for each section.\n"
           "With --tokenizer text becomes the model's tokens, and there are {\"messages\": [...]} (the "
           "answers "
           "are\n"
           "learnt), {\"prompt\": \"...\", \"completion\": \"...\"}, {\"instruction\": ..., \"input\": ..., "
           "\"output\": ...}\n"
           "and {\"conversations\": [...]}."},
      parent);
  command->add_option("paths", flags->paths, "Files or folders")->required();
  command->add_option("--out", flags->out, "Path of the dataset, without .idx and .bin")->required();
  command
      ->add_option_function<std::string>(
          "--format", [flags](const std::string& name) { flags->options.format = formats.at(name); },
          "What the files are (auto: by their names)")
      ->check(CLI::IsMember(formats));
  command->add_option(
      "--tokenizer", flags->tokenizer,
      "Makes tokens of text: a folder with tokenizer.json, tokenizer.model or spiece.model, of "
      "Hugging Face's or of `penstock model import`, or such a file");
  command->add_option("--threads", flags->threads, "Tokenizers that run side by side (default: one a core)")
      ->check(CLI::Range(1U, 1024U));
  command->add_flag_callback(
      "--sample-per-answer", [flags] { flags->options.conversations = Conversations::kEachAnswer; },
      "Conversations of several answers: a sample for each, with all before it as its input (default: one "
      "sample, of which the answers are learnt)");
  command->add_option("--validation-share", flags->options.validation_share,
                      "Share of the lines, rows or sections that go to a dataset of their own, for `up "
                      "--validation`: as if drawn by chance, the same ones each time");
  command->add_option("--validation-out", flags->options.validation_prefix,
                      "Path of that dataset (OUT-validation)");
  command->add_option("--vocab", flags->options.vocab, "Number of token ids; larger tokens are refused");
  command->add_option("--min-section", flags->options.sections.min_bytes,
                      "Text: shortest section, bytes (64)");
  command
      ->add_option("--max-section", flags->options.sections.max_bytes, "Text: longest section, bytes (2048)")
      ->check(CLI::Range(1U, 1U << 20));
  command->add_flag("--json", flags->json, "Print one JSON object");
  commands.OnRun(command, [flags] { return RunImport(*flags); });
}

void AddInfo(CommandSet& commands, CLI::App* parent) {
  auto flags = std::make_shared<ShowFlags>();
  CLI::App* command = commands.Add({.name = "info",
                                    .purpose = "Checks a dataset and counts its samples and tokens",
                                    .examples = "penstock dataset info data/train"},
                                   parent);
  command->add_option("dataset", flags->prefix, "Path of the dataset, without .idx and .bin")->required();
  command->add_flag("--json", flags->json, "Print one JSON object");
  commands.OnRun(command, [flags] { return RunInfo(*flags); });
}

void AddLengths(CommandSet& commands, CLI::App* parent) {
  auto flags = std::make_shared<ShowFlags>();
  CLI::App* command = commands.Add({.name = "lengths",
                                    .purpose = "Shows how long the samples are: quantiles and a histogram",
                                    .examples = "penstock dataset lengths data/train\n"
                                                "penstock dataset lengths data/train --csv lengths.csv"},
                                   parent);
  command->add_option("dataset", flags->prefix, "Path of the dataset, without .idx and .bin")->required();
  command->add_option("--csv", flags->csv, "Write the lengths as `penstock plan --lengths` reads them");
  command->add_flag("--json", flags->json, "Print one JSON object");
  commands.OnRun(command, [flags] { return RunLengths(*flags); });
}

}  // namespace

void AddDatasetCommands(CommandSet& commands) {
  CLI::App* parent = commands.Add(
      {.name = "dataset", .purpose = "Makes and shows token datasets (Megatron-LM's .bin and .idx)"});
  parent->require_subcommand(1);
  AddImport(commands, parent);
  AddInfo(commands, parent);
  AddLengths(commands, parent);
}

}  // namespace penstock::cli
