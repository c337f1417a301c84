#include "planner/cli/profile/measure_commands.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/files/files.h"
#include "common/files/scratch_folder.h"
#include "common/held_out/measured_contexts.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "planner/cli/adapter_flags.h"
#include "planner/cli/plan_summary.h"
#include "planner/cli/printable_text.h"
#include "planner/cli/profile/measured_model.h"
#include "planner/cli/profile/profile_errors.h"
#include "planner/cli/profile/rehearsal.h"
#include "planner/cli/profile_file.h"
#include "planner/cli/up/cost_profile_cache.h"
#include "planner/cli/up/device_list.h"
#include "planner/cli/up/machine.h"
#include "planner/cli/up/measuring_workers.h"
#include "planner/cli/up/program_folder.h"
#include "planner/cli/up/stop_signal.h"

namespace penstock::cli {
namespace {

// What is measured on, and for how long.
struct MachineFlags {
  uint32_t workers = 1;
  // 0: cores / workers.
  uint32_t threads = 0;
  std::string device = "cpu";
  double seconds = 6;

  void AddTo(CLI::App& command);
  uint32_t ThreadsOfEach() const {
    return threads > 0 ? threads : std::max(1U, std::thread::hardware_concurrency() / workers);
  }
  // Not simulated. Possible errors: INVALID_ARGUMENT (names --device).
  absl::StatusOr<DeviceList> Device() const;
  // The GPU of each worker; empty: CPU. Possible errors: as of Device, and of GpuOfEachRank.
  absl::StatusOr<std::vector<uint32_t>> Gpus() const;
};

struct MeasureFlags {
  MachineFlags machine;
  std::string model;
  uint32_t max_length = 0;
  AdapterFlags adapters;
  std::vector<uint32_t> tensor_degrees = {1};
  std::vector<uint32_t> context_ranks;
  uint32_t expert = 1;
  // Iterations; 0: none.
  uint64_t rehearsal = 8;
  std::string out;
  bool json = false;
};

struct CheckFlags {
  MachineFlags machine;
  // Empty: those that the profile was measured for.
  std::vector<uint32_t> context_ranks;
  std::string file;
  std::string times;
  std::string save_times;
  // Percent; 0: none.
  double limit = 0;
  double limit_95 = 0;
  bool json = false;
};

void MachineFlags::AddTo(CLI::App& command) {
  command
      .add_option("--workers", workers,
                  "Workers that train on this machine: as many measure side by side, because they slow each "
                  "other down")
      ->check(CLI::Range(1U, 1U << 10))
      ->capture_default_str();
  command.add_option("--threads", threads, "Threads of each worker (default: cores / workers)")
      ->check(CLI::Range(0U, 1U << 10));
  command.add_option("--device", device, "cpu, cuda (from cuda:0 on), or cuda:0..3: a GPU for each worker")
      ->capture_default_str();
  command.add_option("--seconds", seconds, "Time to measure, about; a busy machine takes longer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

absl::StatusOr<DeviceList> MachineFlags::Device() const {
  absl::StatusOr<DeviceList> devices = ParseDevices(device);
  if (!devices.ok()) return AnnotateError(devices.status(), "--device");
  if (devices->kind == UpDevice::kSimulated)
    return absl::InvalidArgumentError("--device simulated: it takes the times of a profile; use cpu or cuda");
  return devices;
}

absl::StatusOr<std::vector<uint32_t>> MachineFlags::Gpus() const {
  PENSTOCK_ASSIGN_OR_RETURN(const DeviceList devices, Device());
  if (devices.kind == UpDevice::kCpu) return std::vector<uint32_t>();
  return GpuOfEachRank(devices, workers);
}

absl::StatusOr<std::string> FindWorker() {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string folder, FolderOfPrograms({"penstock-worker"}));
  return absl::StrCat(folder, "/penstock-worker");
}

// A line on a terminal that is written over, for as long as this object lives; nothing elsewhere.
class MeasuringProgress {
 public:
  explicit MeasuringProgress(double seconds) : seconds_(seconds) {}
  ~MeasuringProgress() {
    if (terminal_) std::cerr << "\r\x1b[K" << std::flush;
  }
  MeasuringProgress(const MeasuringProgress&) = delete;
  MeasuringProgress& operator=(const MeasuringProgress&) = delete;

  // Shows it, and waits for a signal.
  bool Stopped(absl::Duration timeout) {
    if (terminal_) {
      std::cerr << absl::StrFormat("\rmeasuring: %.0f s of about %.0f s\x1b[K",
                                   absl::ToDoubleSeconds(absl::Now() - begun_), seconds_)
                << std::flush;
    }
    return stop_.WaitFor(timeout);
  }

 private:
  const double seconds_;
  const absl::Time begun_ = absl::Now();
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  StopSignal stop_;
};

void SayThatItGoesOn(bool goes_on) {
  if (goes_on) std::cerr << "penstock: going on with the measurement that was interrupted\n";
}

// Ascending, each once; with one context rank all rows are whole.
std::vector<uint32_t> AboveOne(const std::vector<uint32_t>& ranks) {
  std::set<uint32_t> several(ranks.begin(), ranks.end());
  several.erase(1);
  return {several.begin(), several.end()};
}

// A flag that both commands have.
void AddContextRanks(CLI::App& command, const std::string& purpose, std::vector<uint32_t>& ranks) {
  command.add_option("--cp", ranks, purpose)->delimiter(',')->check(CLI::Range(1U, 1U << 10));
}

std::string SayDisturbed(const std::string& disturbance) {
  return absl::StrCat("disturbed: ", disturbance,
                      "; measure again on a quiet machine, or with --workers as many as share its cores");
}

void PrintMeasured(const MeasureFlags& flags, const MeasuredProfile& measured) {
  const std::string& path = flags.out.empty() ? measured.path : flags.out;
  const std::string& comment = measured.file.profile().comment();
  if (flags.json) {
    PrintOut(absl::StrCat(DumpJson({{"profile", path},
                                    {"comment", comment},
                                    {"disturbance", measured.disturbance},
                                    {"cached", !measured.path.empty()}}),
                          "\n"));
    return;
  }
  PrintOut(absl::StrCat("cost profile: ", path, "\n", comment, "\n`penstock profile show ", path,
                        "` says what is in it, `penstock profile check ", path, "` how good it is.\n"));
}

// Where it fails the profile stays as it was measured.
absl::Status RehearseWith(const MeasureFlags& flags, MeasuredProfile* measured) {
  PENSTOCK_ASSIGN_OR_RETURN(const DeviceList device, flags.machine.Device());
  std::cerr << "penstock: measured; now trained with for about as long\n";
  absl::StatusOr<v1::CostProfile> trained = Rehearse({.file = measured->file,
                                                      .workers = flags.machine.workers,
                                                      .threads = flags.machine.ThreadsOfEach(),
                                                      .expert = flags.expert,
                                                      .device = device,
                                                      .iterations = flags.rehearsal,
                                                      .time = absl::Seconds(flags.machine.seconds)});
  if (absl::IsCancelled(trained.status())) return trained.status();
  if (!trained.ok()) {
    std::cerr << "penstock: not rehearsed, so plans may be some percent too short: "
              << PrintableText(std::string(trained.status().message())) << "\n";
    return absl::OkStatus();
  }
  *measured->file.mutable_alone() = std::exchange(*measured->file.mutable_profile(), *std::move(trained));
  for (const std::string& path : {measured->path, flags.out})
    if (!path.empty()) PENSTOCK_RETURN_IF_ERROR(WriteProfileFile(measured->file, path));
  return absl::OkStatus();
}

absl::Status RunMeasure(const MeasureFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(v1::ModelSpec model, ReadMeasuredModel(flags.model, flags.max_length));
  PENSTOCK_RETURN_IF_ERROR(flags.adapters.Give(&model));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<uint32_t> gpus, flags.machine.Gpus());
  PENSTOCK_ASSIGN_OR_RETURN(const std::string worker, FindWorker());
  if (!flags.out.empty()) PENSTOCK_RETURN_IF_ERROR(AnnotateError(CheckWritable(flags.out), "--out"));
  absl::StatusOr<MeasuredProfile> measured;
  {
    MeasuringProgress progress(flags.machine.seconds);
    measured = MeasureOrReadProfile({.worker_binary = worker,
                                     .model = model,
                                     .threads = flags.machine.ThreadsOfEach(),
                                     .copies = flags.machine.workers,
                                     .gpus = gpus,
                                     .tensor_degrees = flags.tensor_degrees,
                                     .context_ranks = AboveOne(flags.context_ranks),
                                     .expert = flags.expert,
                                     .seconds = flags.machine.seconds,
                                     .cache_dir = absl::StrCat(CacheFolder(), "/profiles"),
                                     .anew = true,
                                     .on_start = SayThatItGoesOn,
                                     .stopped = [&](absl::Duration d) { return progress.Stopped(d); }});
  }
  PENSTOCK_RETURN_IF_ERROR(measured.status());
  if (!measured->disturbance.empty() && flags.out.empty())
    return absl::UnavailableError(absl::StrCat("nothing is kept, ", SayDisturbed(measured->disturbance)));
  if (!flags.out.empty()) PENSTOCK_RETURN_IF_ERROR(WriteProfileFile(measured->file, flags.out));
  if (flags.rehearsal > 0) PENSTOCK_RETURN_IF_ERROR(RehearseWith(flags, &*measured));
  PrintMeasured(flags, *measured);
  if (!measured->disturbance.empty())
    std::cerr << "penstock: " << SayDisturbed(measured->disturbance) << "\n";
  return absl::OkStatus();
}

absl::StatusOr<HeldOutTimes> ReadTimes(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  const absl::StatusOr<HeldOutTimes> times = HeldOutTimesFromJson(json);
  return times.ok() ? times : absl::StatusOr<HeldOutTimes>(AnnotateError(times.status(), path));
}

absl::StatusOr<HeldOutTimes> MeasureTimes(const CheckFlags& flags, const v1::ProfileFile& file) {
  const std::vector<uint32_t> ranks = flags.context_ranks.empty()
                                          ? MeasuredContextsOf(file.profile().comment())
                                          : AboveOne(flags.context_ranks);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<uint32_t> gpus, flags.machine.Gpus());
  PENSTOCK_ASSIGN_OR_RETURN(const std::string worker, FindWorker());
  PENSTOCK_ASSIGN_OR_RETURN(const ScratchFolder folder, ScratchFolder::Make("penstock-check"));
  const std::string output = absl::StrCat(folder.path(), "/times.json");
  MeasuringProgress progress(flags.machine.seconds);
  PENSTOCK_RETURN_IF_ERROR(
      RunMeasuringWorkers({.worker_binary = worker,
                           .command = "profile-check",
                           .arguments = ContextArguments(ranks),
                           .model = file.model(),
                           .threads = flags.machine.ThreadsOfEach(),
                           .copies = flags.machine.workers,
                           .gpus = gpus,
                           .seconds = flags.machine.seconds,
                           .stopped = [&](absl::Duration timeout) { return progress.Stopped(timeout); }},
                          output));
  return ReadTimes(output);
}

// Percent of the flags against a share.
absl::Status CheckLimit(const char* flag, double limit, const char* what, double error) {
  if (limit == 0 || 100 * error <= limit) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("%s %g: the %s of the errors is %.1f %%", flag, limit, what, 100 * error));
}

absl::Status RunCheck(const CheckFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ProfileFile file, ReadProfileFile("FILE", flags.file));
  if (!flags.save_times.empty())
    PENSTOCK_RETURN_IF_ERROR(AnnotateError(CheckWritable(flags.save_times), "--save-times"));
  absl::StatusOr<HeldOutTimes> times =
      flags.times.empty() ? MeasureTimes(flags, file) : ReadTimes(flags.times);
  if (!times.ok() && !flags.times.empty()) return AnnotateError(times.status(), "--times");
  PENSTOCK_RETURN_IF_ERROR(times.status());
  if (!flags.save_times.empty())
    PENSTOCK_RETURN_IF_ERROR(WriteFileAtomically(flags.save_times, ToJson(*times)));
  PENSTOCK_ASSIGN_OR_RETURN(const ProfileErrors errors, ErrorsOf(file, *times));
  PrintOut(flags.json ? absl::StrCat(DumpJson(ToJson(errors)), "\n") : ToText(errors));
  const ErrorDistribution& all = errors.distributions.front();
  PENSTOCK_RETURN_IF_ERROR(CheckLimit("--limit", flags.limit, "median", all.median));
  return CheckLimit("--limit-95", flags.limit_95, "95th percentile", all.percentile_95);
}

}  // namespace

void AddMeasureCommands(CommandSet& commands, CLI::App* profile) {
  const auto measuring = std::make_shared<MeasureFlags>();
  CLI::App* measure = commands.Add(
      {.name = "measure",
       .purpose = "Measures what a model costs on this machine: the cost profile that penstock up would take",
       .examples = "penstock profile measure --model models/llama --max-length 2048 --workers 2\n"
                   "penstock profile measure --model penstock-runs/mix --device cuda --out h100.json"},
      profile);
  measure
      ->add_option(
          "--model", measuring->model,
          "A folder with a model (a run, an imported one), a config.json of Hugging Face's, or a cost "
          "profile, whose model is measured anew")
      ->required();
  measure->add_option("--max-length", measuring->max_length,
                      "Tokens of the longest sample (default: the model's longest)");
  measuring->adapters.AddTo(*measure);
  measure
      ->add_option("--tp", measuring->tensor_degrees,
                   "Of so many tensor ranks too; several for meshes that differ in it: 2,4")
      ->delimiter(',')
      ->check(CLI::Range(1U, 64U));
  AddContextRanks(
      *measure,
      "Shares of one of so many context ranks too, with which forms are fitted to what is divided: 2,4",
      measuring->context_ranks);
  measure->add_option("--ep", measuring->expert, "Of so many ranks that divide the experts too")
      ->check(CLI::Range(1U, 1U << 16));
  measuring->machine.AddTo(*measure);
  measure
      ->add_option("--rehearse", measuring->rehearsal,
                   "Iterations of training with the profile, and more until they have taken --seconds, after "
                   "which its times are those of ranks that train; 0: none, passes take what they take alone")
      ->check(CLI::Range(0U, 1U << 10))
      ->capture_default_str();
  measure->add_option(
      "--out", measuring->out,
      "Where it is written besides the cache, even if it was disturbed (default: the cache alone, "
      "unless it was disturbed)");
  measure->add_flag("--json", measuring->json, "One JSON object");
  commands.OnRun(measure, [measuring] { return RunMeasure(*measuring); });

  const auto checking = std::make_shared<CheckFlags>();
  CLI::App* check = commands.Add(
      {.name = "check",
       .purpose = "Measures passes that a cost profile was not fitted to, and prints how far off it is",
       .examples = "penstock profile check ~/.cache/penstock/profiles/gpt-hidden128-....json --workers 2\n"
                   "penstock profile check gpt.json --limit 5 --limit-95 15"},
      profile);
  check->add_option("FILE", checking->file, "The cost profile")->required();
  checking->machine.AddTo(*check);
  AddContextRanks(*check,
                  "Shares of one of so many context ranks too; 1: none (default: those that the profile was "
                  "measured for)",
                  checking->context_ranks);
  check
      ->add_option("--limit", checking->limit,
                   "Fail (exit status 1) where the median error is above so many percent")
      ->check(CLI::PositiveNumber);
  check->add_option("--limit-95", checking->limit_95, "The same for the 95th percentile")
      ->check(CLI::PositiveNumber);
  check->add_option("--save-times", checking->save_times, "Write the measured times to this file");
  check->add_option("--times", checking->times, "Compare with times that were saved, and measure nothing");
  check->add_flag("--json", checking->json, "One JSON object");
  commands.OnRun(check, [checking] { return RunCheck(*checking); });
}

}  // namespace penstock::cli
