#include "planner/cli/share_weights_flag.h"

#include <CLI/CLI.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/status/status_macros.h"
#include "planner/cli/text_table.h"
#include "planner/cli/thousands.h"
#include "planner/cli/units.h"
#include "planner/core/contract/limits.h"
#include "planner/core/strategies/choose_share_weights.h"

namespace penstock::cli {
namespace {

constexpr char kChosenWeights[] = "auto";

absl::StatusOr<ShareWeightsFlag> ParseShareWeights(const std::string& text) {
  ShareWeightsFlag flag = {.weights = {}, .choose = text == kChosenWeights};
  if (flag.choose) return flag;
  for (const auto& word : absl::StrSplit(text, ',')) {
    uint32_t weight = 0;
    if (absl::SimpleAtoi(word, &weight) && weight <= core::kMostShareWeight) {
      flag.weights.push_back(weight);
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("'", word, "' is no whole number from 0 to ",
                                                   core::kMostShareWeight,
                                                   "; give one a rank, as 3,1,0,2, or auto"));
  }
  return flag;
}

std::string Figures(const core::WeightsTrial& trial) {
  return absl::StrCat(Fixed(Milliseconds(static_cast<int64_t>(trial.iteration_ns)), 1), " ms an iteration, ",
                      WithThousands(Megabytes(trial.peak_bytes)), " MB of the fullest rank");
}

std::string ChoiceText(const core::ShareWeightsChoice& choice) {
  if (choice.chosen.weights.empty())
    return absl::StrCat("share weights: all alike, which no others are better than: ", Figures(choice.alike));
  return absl::StrCat("share weights: ", ShareWeightsText(choice.chosen.weights), ": ",
                      Figures(choice.chosen),
                      "; all alike: ", choice.alike_fits() ? Figures(choice.alike) : "do not fit in memory");
}

}  // namespace

void ShareWeightsFlag::AddTo(CLI::App& command) {
  command
      .add_option_function<std::string>(
          "--share-weights",
          [this](const std::string& text) { *this = ParseShareWeights(text).value_or(ShareWeightsFlag()); },
          "With --parameter-shares or --strategies: how large each rank's share is beside the others', by "
          "rank, 0: it has none; auto: chosen by the ranks' memory and speed (all alike)")
      ->check([](const std::string& text) { return std::string(ParseShareWeights(text).status().message()); })
      ->option_text("W,W,...|auto");
}

std::string ShareWeightsText(absl::Span<const uint32_t> weights) { return absl::StrJoin(weights, ","); }

absl::StatusOr<std::string> ChooseWeightsOfShares(const ShareWeightsFlag& flag,
                                                  absl::Span<const v1::Batch> batches,
                                                  const core::RunTasks& run_tasks, v1::JobSpec* job) {
  if (!flag.choose) return std::string();
  PENSTOCK_ASSIGN_OR_RETURN(const core::ShareWeightsChoice choice,
                            core::ChooseShareWeights(*job, batches, run_tasks));
  core::SetShareWeights(choice, job);
  return ChoiceText(choice);
}

}  // namespace penstock::cli
