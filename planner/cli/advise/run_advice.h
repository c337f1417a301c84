// What would make a run faster, with the costs as it measured them and on batches that it trained on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "planner/cli/advise/candidates.h"
#include "planner/cli/advise/levers.h"
#include "planner/cli/advise/measured_run.h"

namespace penstock::cli {

// Another way with as many ranks. Times are means over the batches.
struct OtherWay {
  Candidate way;
  double planned_ms = 0;
  // Of the fullest rank.
  int64_t peak_memory_bytes = 0;
  // The flags of `penstock up --resume` that go on so.
  std::string flags;
};

struct LeverValue {
  Lever lever;
  bool feasible = true;
  // Why not.
  std::string reason;
  double planned_ms = 0;
  // Without the change: RunAdvice.planned_ms, but where the lever has a job `before`.
  double before_ms = 0;

  double saved_ms() const { return before_ms - planned_ms; }
};

struct RunAdvice {
  Candidate present;
  // Of the run as it is, by the newest costs.
  double planned_ms = 0;
  // Fastest first, without the present way.
  std::vector<OtherWay> others;
  // Of RunAdviceOptions.buckets. The present way with gradients' buckets of the size that is planned to be
  // the fastest, where it has others now: on workers that compute, a run that names no size has the usual
  // one.
  std::optional<OtherWay> resized = {};
  // Of the run as it is, its buckets planned as those of other ways are. The same as planned_ms where they
  // are planned so anyway, or are none.
  double planned_alike_ms = 0;
  // The most gain first, what does not fit last.
  std::vector<LeverValue> levers;
};

// What was measured with so many threads a rank.
struct ThreadProfile {
  int threads = 1;
  v1::CostProfile profile = {};
};

// "2:profile.json". Possible errors: INVALID_ARGUMENT (not of this form), those of ReadProfileFile.
absl::StatusOr<ThreadProfile> ReadThreadProfile(const std::string& text);

struct RunAdviceOptions {
  std::vector<v1::Policy> policies = {v1::POLICY_DYNAMIC, v1::POLICY_PACKED};
  Given given = {};
  // Ways of `others`, at most.
  int ways = 5;
  int threads = 1;
  bool levers = true;
  // Profiles of the model with other threads a rank, of ranks that compute on CPUs: each is a lever.
  std::vector<ThreadProfile> thread_profiles = {};
  // Stages are chosen for the samples that the job names, as `penstock up` chooses them, and not for the
  // run's batches.
  bool own_typical_samples = false;
  // Ways have the size of gradients' buckets with which they are planned to be the fastest, where passes hide
  // any of them.
  bool buckets = false;
  std::function<void(int round, size_t done, size_t all)> progress = [](int, size_t, size_t) {};
};

// The same answer for any number of threads. Possible errors: RESOURCE_EXHAUSTED, INVALID_ARGUMENT (the run's
// own batches cannot be planned: says why), those of RunTournament.
absl::StatusOr<RunAdvice> AdviseRun(const MeasuredRun& run, const RunAdviceOptions& options);

}  // namespace penstock::cli
