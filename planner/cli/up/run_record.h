// run.json: what a run was started with, so that it can be gone on with by --resume alone, and with nothing
// else than it had by mistake.
//
//   {"format": 2, "flags": {"--lr": ["0.01"]}, "data": {"samples": 3868, "crc32": 77, "global_batch": 64,
//   ...},
//    "job": ... a penstock.v1.JobSpec without its cost profile ...,
//    "outlook": ... what was expected of it, for people ...,
//    "auto_tune": ... what --auto-tune has tried, for people ...}
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "penstock/v1/job.pb.h"
#include "planner/cli/recorded_flags.h"

namespace penstock::cli {

// Where the folders of runs are that were given no --run-dir.
inline constexpr const char* kRunsFolder = "penstock-runs";

// A task of a mixture, as --mix gave it.
struct MixRecord {
  std::string task;
  double weight = 0;
};

// What the samples of a run are.
struct DataRecord {
  // Of a dataset: what is in it, wherever it lies.
  uint64_t samples = 0;
  uint32_t crc32 = 0;
  // Of an iteration.
  uint64_t global_batch = 0;
  uint32_t max_length = 0;
  uint32_t max_input = 0;
  uint32_t max_target = 0;
  // The word of --cut.
  std::string cut = "input-end";
  // Empty: one dataset, or lengths.
  std::vector<MixRecord> mix = {};
};

struct RunRecord {
  // Those that the run was started with, or resumed with since.
  FlagValues flags;
  DataRecord data;
  // Without its cost profile.
  v1::JobSpec job;
  // JSON: which ways --auto-tune has tried, and which has won; empty: none.
  std::string auto_tune = {};
};

// Possible errors: NOT_FOUND (no run.json in the folder), INVALID_ARGUMENT (not what is written; names the
// file), those of ReadFile.
absl::StatusOr<RunRecord> ReadRunRecord(const std::string& run_dir);
// Possible errors: those of WriteFileAtomically.
absl::Status WriteRunRecord(const std::string& run_dir, const RunRecord& record);

// Adds what the run is expected to do (run_outlook.h), or what --auto-tune has tried (auto_tune.h), to its
// run.json. Possible errors: those of ReadFile and WriteFileAtomically.
absl::Status RecordOutlook(const std::string& run_dir, const nlohmann::ordered_json& outlook);
absl::Status RecordAutoTune(const std::string& run_dir, const nlohmann::ordered_json& tried);
// Has the run go on with these strategies when it is resumed (StrategyNames). Possible errors: the same, and
// those of ReadRunRecord.
absl::Status RecordStrategies(const std::string& run_dir, const std::string& strategies);

// The folder of the run that was started last below `runs`. Possible errors: NOT_FOUND (none has a run.json;
// names --run-dir).
absl::StatusOr<std::string> NewestRunFolder(const std::string& runs);

// An error where `now` differs from what the run had before, in the model and the seed at all, in the data
// and the optimizer's numbers unless the flag is one of `allowed` ("lr"). Mesh, planning and number of
// iterations may change. Possible errors: INVALID_ARGUMENT, naming the flag, both values and what to do.
absl::Status CheckSameRun(const RunRecord& before, const RunRecord& now,
                          const std::vector<std::string>& allowed, const std::string& run_dir);

// What `allowed` of CheckSameRun may hold.
std::vector<std::string> ChangeableFlags();

}  // namespace penstock::cli
