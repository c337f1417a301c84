#include "planner/cli/import_command.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/dataset/import.h"
#include "common/parallel/task_pool.h"
#include "common/process/binary_folder.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/import_progress.h"
#include "planner/cli/plan_summary.h"
#include "planner/cli/printable_text.h"
#include "planner/cli/thousands.h"
#include "planner/cli/tokenizer/model_tokenizer.h"

namespace penstock::cli {
namespace {

struct ImportFlags {
  std::vector<std::string> paths;
  std::string out;
  ImportOptions options;
  // Empty: bytes are tokens.
  std::string tokenizer;
  // 0: the cores of this machine.
  uint32_t threads = 0;
  double save_every_seconds = 30;
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

// What becomes of the part that an earlier import has left.
std::string EarlierText(const EarlierImport& earlier) {
  if (!earlier.goes_on)
    return absl::StrCat("begins anew, not where the import before it ended: ", earlier.reason);
  const std::string samples =
      absl::StrCat(WithThousands(static_cast<double>(earlier.samples)), " samples are there");
  if (earlier.file.empty()) return absl::StrCat("goes on behind the last file: ", samples);
  if (earlier.items == 0) return absl::StrCat("goes on at '", earlier.file, "': ", samples);
  return absl::StrCat("goes on behind ", earlier.item, " ", WithThousands(static_cast<double>(earlier.items)),
                      " of '", earlier.file, "': ", samples);
}

absl::Status CheckFlags(const ImportFlags& flags) {
  const TextSectionOptions& sections = flags.options.sections;
  if (sections.min_bytes > sections.max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("--min-section ", sections.min_bytes,
                                                   ": --max-section is ", sections.max_bytes,
                                                   ", give one that is not above it"));
  }
  if (!(flags.save_every_seconds >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--save-every-seconds ", flags.save_every_seconds, ": use a number of at least 0"));
  }
  return CheckValidation(flags);
}

void PrintSummary(const ImportFlags& flags, const ImportOptions& options, const ImportSummary& summary) {
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
    return;
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
}

absl::Status RunImport(const ImportFlags& flags) {
  PENSTOCK_RETURN_IF_ERROR(CheckFlags(flags));
  PENSTOCK_ASSIGN_OR_RETURN(const auto tokenizers, StartTokenizers(flags));
  ImportOptions options = flags.options;
  if (options.validation_prefix.empty()) options.validation_prefix = absl::StrCat(flags.out, "-validation");
  options.parquet_program = ParquetProgram();
  for (const auto& tokenizer : tokenizers) options.tokenizers.push_back(tokenizer.get());
  options.save_every = absl::Seconds(flags.save_every_seconds);
  options.earlier = [](const EarlierImport& earlier) {
    std::cerr << "penstock dataset import: " << PrintableText(EarlierText(earlier)) << "\n";
  };
  std::optional<ImportProgressPrinter> printer(std::in_place);
  options.progress = [&printer](const ImportProgress& progress) { printer->Show(progress); };
  const absl::StatusOr<ImportSummary> summary = ImportDataset(flags.paths, flags.out, options);
  printer.reset();
  PENSTOCK_RETURN_IF_ERROR(summary.status());
  PrintSummary(flags, options, *summary);
  return absl::OkStatus();
}

}  // namespace

void AddDatasetImport(CommandSet& commands, CLI::App* parent) {
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
  command->add_option("--save-every-seconds", flags->save_every_seconds,
                      "How often it is noted how far it is: after an interruption or an error the same "
                      "command goes on from there (30)");
  command->add_flag("--restart", flags->options.restart,
                    "Begin anew, whatever an import that was interrupted has left");
  command->add_flag("--json", flags->json, "Print one JSON object");
  commands.OnRun(command, [flags] { return RunImport(*flags); });
}

}  // namespace penstock::cli
