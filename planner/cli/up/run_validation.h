// What a run is validated with while it trains: an evaluation of its checkpoints beside it (validation.h),
// its own ranks (rank_validation.h), or nothing; and the best checkpoint of it.
//
//   RunValidation validation;      // nothing
//   PENSTOCK_ASSIGN_OR_RETURN(validation, RunValidation::Open(setup, bin_dir));
//   ... after each iteration ...
//   if (const auto found = validation.Add(summary); found.has_value()) Say(*found);
//   ... again and again ...
//   const absl::StatusOr<std::optional<ValidatedCheckpoint>> found = validation.Step();
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/up/best_checkpoint.h"
#include "planner/cli/up/rank_validation.h"
#include "planner/cli/up/run_setup.h"
#include "planner/cli/up/validation.h"

namespace penstock::cli {

class RunValidation {
 public:
  // As the run's options say; `bin_dir`: where penstock-worker is. Possible errors: those of
  // BestCheckpoint::Open.
  static absl::StatusOr<RunValidation> Open(const RunSetup& setup, const std::string& bin_dir);

  // What the ranks found in this iteration, if they validated in it.
  std::optional<ValidatedCheckpoint> Add(const v1::IterationSummary& iteration);

  // What was found beside the run since the last call, if anything; and the best checkpoint is kept once it
  // is there. Does not block. Possible errors: those of RankValidation::Keep and Validation::Step; the next
  // checkpoint is tried all the same.
  absl::StatusOr<std::optional<ValidatedCheckpoint>> Step();
  // Whether Step has something to wait for, or to begin with.
  bool pending() const { return beside_ != nullptr && beside_->pending(); }

  // Whether so many validations in a row were no better than the best; 0: there is no such number.
  bool IsOutOfPatience(uint32_t patience) const;

  // Null: nothing is validated.
  const BestCheckpoint* best() const;
  // What is in best()->folder(); nothing: no checkpoint was kept.
  std::optional<ValidatedCheckpoint> kept() const;

 private:
  // One of the two, at most.
  std::unique_ptr<Validation> beside_;
  std::unique_ptr<RankValidation> on_ranks_;
};

// "validation after iteration 99: loss 2.3456 (code 2.1000), the best so far".
std::string DescribeValidation(const ValidatedCheckpoint& checkpoint);

}  // namespace penstock::cli
