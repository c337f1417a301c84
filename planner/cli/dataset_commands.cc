// `penstock dataset`: shows token datasets; import_command.cc makes them.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/dataset/indexed_dataset.h"
#include "common/dataset/largest_token.h"
#include "common/dataset/length_statistics.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"
#include "planner/cli/commands.h"
#include "planner/cli/import_command.h"
#include "planner/cli/plan_summary.h"
#include "planner/cli/text_table.h"

namespace penstock::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ShowFlags {
  std::string prefix;
  std::string csv;
  bool json = false;
};

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
  AddDatasetImport(commands, parent);
  AddInfo(commands, parent);
  AddLengths(commands, parent);
}

}  // namespace penstock::cli
