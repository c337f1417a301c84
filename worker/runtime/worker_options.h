// The command line of penstock-worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint_folder.h"
#include "common/dataset/named_datasets.h"
#include "common/simulation/clock_error.h"
#include "common/simulation/simulation_options.h"
#include "penstock/client/security.h"
#include "worker/runtime/launcher_rank.h"

namespace penstock::worker {

// Of RunOptions::device.
inline constexpr const char* kSimulatedDevice = "simulated";

// `penstock-worker --planner ... --job ...`: run a rank.
struct RunOptions {
  std::string planner;
  ClientSecurity security;
  std::string job_id;
  std::optional<uint32_t> rank;
  // What incarnations are made from (common/secret/incarnation.h); empty: they are random.
  std::string incarnation_key;
  // What said so: "--rank" or a variable of the environment; empty where the planner chooses.
  std::string rank_from;
  // Of one dataset, or of all tasks of a mixture in their order.
  std::vector<std::string> datasets;
  // Those that are validated on the ranks; their samples are behind all of `datasets`.
  std::vector<std::string> validation;
  // The start of an input that is too long is cut, and not its end.
  bool cut_input_start = false;
  std::string checkpoint_dir;
  bool resume = false;
  // Checkpoints are read and not written.
  bool no_checkpoints = false;
  // The newest complete ones that stay; 0: all.
  size_t kept_checkpoints = kKeptCheckpoints;
  // "continue": training goes on after a checkpoint that cannot be written; or "stop".
  std::string checkpoint_failures = "continue";
  // When another rank is lost: what this one holds is not written, and the job goes back to the newest
  // checkpoint.
  bool no_rescue = false;
  std::string init_from;
  // Folder of the checkpoint that has what adapters leave frozen; empty: drawn by the seed.
  std::string base;
  std::string host = "127.0.0.1";
  // "host:port" of Prometheus metrics; empty: none are served.
  std::string metrics_listen;
  // "host:port" of a collector of OpenTelemetry; empty: no spans are made.
  std::string otlp_endpoint;
  uint32_t threads = 1;
  // "cpu", "cuda:N" or "simulated".
  std::string device = "cpu";
  // Of the simulated device.
  SimulationOptions simulation = {};
  std::vector<ClockError> clock_errors = {};
  std::string gradients_dir;
  // Seconds to wait for the other ranks, to connect with them, and for one transfer.
  uint32_t ready_timeout_s = 600;
  uint32_t connect_timeout_s = 10;
  uint32_t transfer_timeout_s = 600;
  // Seconds that the planner may be silent.
  uint32_t planner_timeout_s = 3600;
  // After SIGTERM or SIGINT: seconds for the iteration and a checkpoint; 0: neither is waited for.
  uint32_t stop_seconds = 20;
  // Epochs in a row that may fail without a new iteration before the worker ends; 0: it ends with its first.
  uint32_t max_rejoins = 10;
};

// `penstock-worker profile ...`: measure what a model costs on this machine.
struct ProfileOptions {
  std::string model_json;
  std::string out;
  double seconds = 6;
  uint32_t threads = 1;
  // "cpu" or "cuda:N".
  std::string device = "cpu";
  // Tensor degrees at which layers are measured too; empty: 2 and 4, where they can divide the model.
  std::vector<int> tensor = {};
  // Shares of one of so many context ranks are measured too.
  std::vector<int> context = {};
  // So many ranks divide the experts.
  int expert = 1;
  // Ranks take turns on the cores of this machine, and measure side by side.
  bool shared_cores = false;
  // Workers that measure at the same time, this one among them.
  uint32_t side_by_side = 1;
  // Not links, which another worker measures, whose load this one is.
  bool without_links = false;
  // Where a measurement that is interrupted is gone on from; empty: it begins anew.
  std::string so_far = {};
};

// A trained model that is run forward alone.
struct InferenceOptions {
  std::string model_json;
  // Folder of a checkpoint; of a model with adapters, of these.
  std::string checkpoint;
  // Of a model with adapters: folder of a checkpoint of all else.
  std::string base;
  uint32_t threads = 1;
  // "cpu" or "cuda:N".
  std::string device = "cpu";
};

// `penstock-worker generate ...`: go on with a text. `penstock generate` calls it.
struct GenerateOptions {
  InferenceOptions inference;
  // Of the prompt.
  std::vector<int32_t> tokens;
  int64_t max_tokens = 64;
  double temperature = 0;
  double top_p = 1;
  uint64_t seed = 1;
  // The text ends at one of them.
  std::vector<int32_t> stop_tokens = {};
  // Tokens are bytes, and printed as such.
  bool as_bytes = false;
  // Folder of the tokenizer whose text is printed; empty: the tokens are.
  std::string tokenizer = {};
};

// `penstock-worker evaluate ...`: the loss on datasets. `penstock evaluate` calls it.
struct EvaluateOptions {
  InferenceOptions inference;
  std::vector<NamedDataset> datasets;
  // Samples of each, spread over it; 0: all.
  uint64_t samples = 0;
  // Tokens, beyond which samples are cut; 0: the model's positions.
  int64_t max_length = 0;
  bool json = false;
};

struct CommandLine {
  // Set when the process should end at once, with this status: --help was answered, or the flags are wrong.
  std::optional<int> exit_status;
  // Otherwise one of these.
  std::optional<ProfileOptions> profile;
  // `penstock-worker profile-check ...`: measure passes that profiles are not fitted to. `penstock profile
  // check` calls it. Without degrees.
  std::optional<ProfileOptions> profile_check;
  std::optional<GenerateOptions> generate;
  std::optional<EvaluateOptions> evaluate;
  RunOptions run;
};

// Prints help on stdout and errors, naming the flag or the variable of the environment, on stderr. Without
// --rank the rank is that of whatever launched the worker (launcher_rank.h).
CommandLine ParseCommandLine(int argc, char** argv, const Environment& environment);

}  // namespace penstock::worker
