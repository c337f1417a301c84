// What `penstock up` was asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/dataset/named_datasets.h"
#include "common/simulation/clock_error.h"
#include "common/simulation/simulation_options.h"
#include "penstock/v1/job.pb.h"
#include "planner/cli/adapter_flags.h"
#include "planner/cli/planner_flags.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/recorded_flags.h"
#include "planner/cli/sample_lengths.h"
#include "planner/cli/up/batch_source.h"
#include "planner/cli/up/device_list.h"

namespace penstock::cli {

struct UpOptions {
  std::string job_id;
  // Folder of this run: logs, checkpoints, the flags it was started with.
  std::string run_dir;
  // Go on from the newest checkpoint of the run folder.
  bool resume = false;
  // What may differ from the run that is resumed: names of flags.
  std::vector<std::string> allowed_changes;
  // The flags of the command line, for run.json.
  FlagValues flags;
  // Begin anew although the run folder has checkpoints; they are removed.
  bool fresh = false;
  // Processes that died are started again so often in all; 0: the first death ends the run.
  uint32_t max_restarts = 10;
  // Where ranks are lost for good, the run goes on with at least so many; 0: it ends.
  uint32_t min_ranks = 0;
  // So many other ways to train are measured, for some iterations each, before the run goes on with the
  // fastest (auto_tune.h); 0: none.
  uint32_t auto_tune = 0;
  uint64_t auto_tune_iterations = 8;
  // Of a trial: the run ends, with a checkpoint, after so many iterations; 0: after the last.
  uint64_t trial_iterations = 0;
  // It goes on with fewer ranks than the run was started with (--min-ranks): what it runs on is not the
  // run's.
  bool on_fewer_ranks = false;
  // Of hosts_file, those that no worker is started on.
  std::set<std::string> lost_hosts;
  // Seconds that the planner, or the store behind it, may fail before the run ends.
  uint32_t planner_timeout_s = 3600;
  // A running planner; without an address: a planner of our own.
  PlannerFlags planner;
  // "host:port" for the metrics of our own planner; empty: none.
  std::string metrics_listen;
  // "host:port" of the metrics of rank 0; those of rank r at port + r. Empty: none.
  std::string worker_metrics_listen;
  // "host:port" of a collector of OpenTelemetry, for all processes that are started; empty: none.
  std::string otlp_endpoint;
  // Of the planner's page; empty: none.
  std::string page_listen = "127.0.0.1:0";

  // A file of the hosts that the workers run on (host_file.h); empty: all on this machine.
  std::string hosts_file;
  // The program that starts something on a host, and flags for it, separated by spaces.
  std::string ssh = "ssh";
  // Of each rank, from hosts_file.
  std::vector<std::string> hosts;

  DeviceList device;
  // Of each rank, from `device` and `hosts`; empty: they run on no GPUs.
  std::vector<uint32_t> gpus;
  SimulationOptions simulation;
  std::vector<ClockError> clock_errors;

  // Data: a dataset, a mixture of several, or (simulated devices) rows of a CSV file of lengths, "A:B" of the
  // first global batch.
  std::string dataset;
  std::vector<MixtureTask> mix;
  std::string lengths;
  std::string rows;
  // Of a dataset.
  uint32_t global_batch = 64;
  // A maximum length of 0: 2048, or what LimitLengthsTo makes of it; with simulated devices no limit.
  LengthLimits limits;
  uint64_t iterations = 30;
  // 0: as many iterations as above. Otherwise CountIterations makes them of it.
  double epochs = 0;

  // Mesh and planning. A memory limit of 0 is this machine's free memory divided by the ranks; on GPUs a
  // share of the GPU's, with simulated devices all of the memory of the profile's cluster.
  uint32_t pipeline = 1;
  uint32_t tensor = 1;
  uint32_t context = 1;
  uint32_t expert = 1;
  uint32_t data = 1;
  // As given; and what it says, of which the first one's mesh is the one above. Empty: that mesh alone.
  std::string strategies_text;
  std::vector<v1::Strategy> strategies;
  v1::Policy policy = v1::POLICY_DYNAMIC;
  PlanningFlags planning;
  uint32_t look_ahead = 0;
  // Costs do not follow what the workers measure.
  bool fixed_costs = false;
  // A profile file; empty: measured on this machine and cached.
  std::string profile;
  double profile_seconds = 6;
  // A profile file: what simulated devices take, in place of the one above, which plans are made with. Empty:
  // that one.
  std::string true_profile;

  // A config.json of Hugging Face's, or a folder with one: the model, in place of the flags below but
  // `dtype`.
  std::string model;
  // Folder of an imported model or of a run: the model, and the parameters to begin with.
  std::string init_from;
  AdapterFlags adapters;
  // Of a model with adapters: folder of the checkpoint with all else, as workers take it. Not a flag.
  std::string base;
  // The model itself, in place of what they name. Not a flag.
  std::optional<v1::ModelSpec> given_model;
  // A run is resumed that was started with one of them: its model is in its folder, whether or not what they
  // name is still there.
  bool model_of_run = false;
  // Model; with simulated devices that of the profile.
  v1::Architecture architecture = v1::ARCHITECTURE_GPT;
  uint32_t layers = 4;
  uint32_t encoder_layers = 2;
  uint32_t decoder_layers = 2;
  uint32_t hidden = 128;
  uint32_t heads = 4;
  // 0: equal to hidden.
  uint32_t attention_inner = 0;
  uint32_t ffn = 512;
  uint32_t experts = 0;
  uint32_t experts_per_token = 2;
  // 0: none.
  uint32_t shared_expert_ffn = 0;
  bool gated_shared_expert = false;
  // From 1; and the width of their feed-forward part, 0: `ffn`.
  std::vector<uint32_t> dense_layers;
  uint32_t dense_ffn = 0;
  // Of any model with experts; empty: as the model has them.
  std::optional<double> router_balance_loss;
  std::optional<double> router_z_loss;
  std::optional<double> expert_capacity;
  v1::FeedForward feed_forward = v1::FEED_FORWARD_UNSPECIFIED;
  // T5.
  uint32_t decoder_start_token = 0;
  // 0: one more than the largest token id of the dataset.
  uint32_t vocab = 0;
  v1::DataType dtype = v1::DATA_TYPE_FLOAT32;
  // The user chose it.
  bool dtype_given = false;

  // Data whose loss is found, each a task; empty: none. With how many samples of each (0: all). After every
  // so many iterations, on the ranks (rank_validation.h); 0: of each checkpoint (validation.h), on this
  // device.
  std::vector<NamedDataset> validation;
  uint64_t validation_samples = 0;
  uint64_t validate_every = 0;
  std::string validation_device = "cpu";
  // Validations in a row that may be no better before training ends; 0: it does not.
  uint64_t patience = 0;

  // Training.
  uint64_t seed = 1;
  double learning_rate = 3e-3;
  double minimum_learning_rate = 3e-4;
  uint64_t warmup = 5;
  v1::RateDecay rate_decay = v1::RATE_DECAY_COSINE;
  // Of RATE_DECAY_COOLDOWN; 0: a fifth of all iterations.
  uint64_t cooldown = 0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;
  // 0: only at the end and when it is stopped.
  uint64_t checkpoint_every = 0;
  bool no_checkpoints = false;
  // The newest complete ones that stay; 0: all.
  size_t kept_checkpoints = kKeptCheckpoints;
  // "continue": training goes on after a checkpoint that cannot be written; or "stop".
  std::string checkpoint_failures = "continue";
  // A run that loses a rank goes back to the newest checkpoint, whatever the others hold.
  bool no_rescue = false;
  // On a signal: seconds for the iteration and its checkpoint.
  uint32_t stop_seconds = 60;
  // Threads of each worker; 0: the machine's cores divided by the workers, at least 1, on GPUs at most 4.
  uint32_t threads = 0;

  // Where the Chrome trace of the measured iterations goes; empty: none.
  std::string trace;
  // The summary as one JSON object.
  bool json = false;
};

inline bool IsSimulated(const UpOptions& options) { return options.device.kind == UpDevice::kSimulated; }
inline bool ValidatesOnRanks(const UpOptions& options) {
  return !options.validation.empty() && options.validate_every > 0;
}
inline bool IsOnGpus(const UpOptions& options) { return options.device.kind == UpDevice::kCuda; }

// Of the first strategy.
v1::Mesh MeshOf(const UpOptions& options);
// That of the mesh, or of each strategy's, ascending.
std::vector<uint32_t> TensorDegreesOf(const UpOptions& options);
// Likewise the most context ranks.
uint32_t MostContextRanksOf(const UpOptions& options);
// The mesh becomes that of the first.
void UseStrategies(std::vector<v1::Strategy> strategies, UpOptions* options);
void UseMesh(const v1::Mesh& mesh, UpOptions* options);
// Ranks of the job.
uint32_t WorkerCount(const UpOptions& options);

// Those of them that share a machine; with --hosts, on the one that has most.
uint32_t WorkersOfOneMachine(const UpOptions& options);

// Fills `hosts` where there is a hosts_file. Possible errors: those of ReadHostFile and HostOfEachRank;
// INVALID_ARGUMENT (hosts that would not reach a planner of our own).
absl::Status FindHosts(UpOptions* options);

// Fills `gpus` where the workers run on GPUs; after FindHosts. Possible errors: those of GpuOfEachRank.
absl::Status FindGpus(UpOptions* options);

// Of simulated devices only where they are asked for: nothing is trained.
bool WritesCheckpoints(const UpOptions& options);
// Whether workers write what they hold when one is lost: each has what another one has too.
bool MayRescue(const UpOptions& options);

// Threads of one worker: as asked for, or an equal share of the cores (with --hosts: of machines like this
// one).
uint32_t ThreadsOfEachWorker(const UpOptions& options);

// Whether the flags of the data fit each other and the device. Possible errors: INVALID_ARGUMENT, naming the
// flag.
absl::Status CheckData(const UpOptions& options);

// Whether the data, the profile and the options of the simulation fit the device.
// Possible errors: INVALID_ARGUMENT, naming the flag.
absl::Status CheckDevice(const UpOptions& options);

// Sets the longest sample where the user did not, for a model that is given as a whole and may have fewer
// positions than the usual limit.
void LimitLengthsTo(const v1::ModelSpec& model, UpOptions* options);

// How samples of a model of this architecture are cut.
SampleCut CutOf(const UpOptions& options, v1::Architecture architecture);

// The model that the flags describe. `vocab` is the size of the vocabulary.
// Possible errors: INVALID_ARGUMENT, naming the flag.
absl::StatusOr<v1::ModelSpec> ModelOfFlags(const UpOptions& options, uint32_t vocab);

// A model that is given as a whole (`model`, `init_from`), for samples of `limits`. `name` is the flag that
// gave it. Learned positions stay as many as they are; of other models the longest sample decides. Possible
// errors: INVALID_ARGUMENT, naming the flag (a limit above the longest sequence of the model).
absl::StatusOr<v1::ModelSpec> FitModel(const UpOptions& options, absl::string_view name, v1::ModelSpec model);

// The job that these options ask for, without its cost profile and first iteration.
// Possible errors: INVALID_ARGUMENT, naming the flag.
absl::StatusOr<v1::JobSpec> MakeJobSpec(const UpOptions& options, const v1::ModelSpec& model);

}  // namespace penstock::cli
