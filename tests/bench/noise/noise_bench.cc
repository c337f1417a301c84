// What plans take under noise: those made for exact times, and those chosen with the profile's pass_noise.
//
//   noise_bench PROFILE.json LENGTHS.csv FIRST_ROW SAMPLES BATCHES PP DP NOISE [SCHEDULE]
//
// Batches are of rows in their order, those above 8,192 tokens left out; the last one or two columns are
// tokens. Each batch is planned both ways, in turns, on one thread, and both plans run again under the same
// 512 draws, which are not those that plans are chosen by. Prints a JSON object for each batch, and one of
// all: exact makespans, means and 95th percentiles under noise (ms), and what planning took.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "planner/core/cost/profile_reader.h"
#include "planner/core/planner.h"
#include "planner/core/replay/times_under_noise.h"

namespace penstock::core {
namespace {

constexpr int kDraws = 512;
constexpr uint32_t kMostTokens = 8192;
constexpr double kNsPerMs = 1e6;

template <typename Value>
Value OrExit(absl::StatusOr<Value> value) {
  if (value.ok()) return *std::move(value);
  std::cerr << value.status() << "\n";
  std::exit(1);
}

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  if (!file) {
    std::cerr << path << ": cannot be read\n";
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

// Of all rows from `first` on.
std::vector<v1::Sample> ReadSamples(const char* path, int first) {
  std::istringstream lines(ReadAll(path));
  std::string line;
  std::getline(lines, line);
  std::vector<v1::Sample> samples;
  for (int row = 0; std::getline(lines, line); ++row) {
    if (row < first) continue;
    std::vector<std::string> fields;
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) fields.push_back(cell);
    v1::Sample sample;
    sample.set_sample_id(static_cast<uint64_t>(row));
    sample.set_target_tokens(static_cast<uint32_t>(std::stoul(fields.back())));
    if (fields.size() > 2) sample.set_input_tokens(static_cast<uint32_t>(std::stoul(fields[1])));
    const uint32_t tokens = sample.input_tokens() + sample.target_tokens();
    if (tokens > 0 && tokens <= kMostTokens) samples.push_back(std::move(sample));
  }
  return samples;
}

v1::Schedule ScheduleOf(const std::string& name) {
  if (name == "1f1b") return v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD;
  if (name == "ready-first") return v1::SCHEDULE_READY_FIRST;
  if (name == "split") return v1::SCHEDULE_SPLIT_BACKWARD;
  return v1::SCHEDULE_AUTO;
}

v1::JobSpec ReadJob(int argc, char** argv) {
  v1::ProfileFile file = OrExit(ParseProfile(ReadAll(argv[1])));
  v1::JobSpec job;
  job.set_job_id("noise");
  *job.mutable_model() = std::move(*file.mutable_model());
  job.mutable_model()->set_max_sequence_length(kMostTokens);
  *job.mutable_profile() = std::move(*file.mutable_profile());
  job.mutable_mesh()->set_pipeline(static_cast<uint32_t>(std::atoi(argv[6])));
  job.mutable_mesh()->set_data(static_cast<uint32_t>(std::atoi(argv[7])));
  job.mutable_planning()->set_policy(v1::POLICY_DYNAMIC);
  if (argc > 9) job.mutable_planning()->set_schedule(ScheduleOf(argv[9]));
  return job;
}

// Of this thread: what others do on the machine does not count.
double CpuMs() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / kNsPerMs;
}

struct Way {
  std::unique_ptr<Planner> planner;
  double exact_ms = 0;
  double mean_ms = 0;
  double late_ms = 0;
  double planning_ms = 0;
  int micro_batches = 0;

  nlohmann::ordered_json ToJson() const {
    return {{"exact_ms", exact_ms},
            {"mean_ms", mean_ms},
            {"late_ms", late_ms},
            {"planning_ms", planning_ms},
            {"micro_batches", micro_batches}};
  }
};

void Plan(const v1::Batch& batch, double noise, Way* one, Way* sum) {
  const double begin_ms = CpuMs();
  const v1::Plan plan = OrExit(one->planner->MakePlan(batch));
  one->planning_ms = CpuMs() - begin_ms;
  const TimesUnderNoise times = OrExit(RunUnderNoise(plan, noise, batch.iteration() + 1, kDraws));
  one->exact_ms = static_cast<double>(plan.predicted().makespan_ns()) / kNsPerMs;
  one->mean_ms = times.mean_ns / kNsPerMs;
  one->late_ms = times.late_ns / kNsPerMs;
  one->micro_batches = 0;
  for (const v1::Replica& replica : plan.replicas()) one->micro_batches += replica.micro_batches_size();
  sum->exact_ms += one->exact_ms;
  sum->mean_ms += one->mean_ms;
  sum->late_ms += one->late_ms;
  sum->planning_ms += one->planning_ms;
  sum->micro_batches += one->micro_batches;
}

int Run(int argc, char** argv) {
  v1::JobSpec job = ReadJob(argc, argv);
  const double noise = std::atof(argv[8]);
  const std::vector<v1::Sample> samples = ReadSamples(argv[2], std::atoi(argv[3]));
  const int size = std::atoi(argv[4]);
  Way exact, steady, all_exact, all_steady;
  exact.planner = OrExit(Planner::Create(job));
  job.mutable_profile()->set_pass_noise(noise);
  steady.planner = OrExit(Planner::Create(job));
  for (int i = 0; i < std::atoi(argv[5]) && static_cast<size_t>((i + 1) * size) <= samples.size(); ++i) {
    v1::Batch batch;
    batch.set_iteration(static_cast<uint64_t>(i));
    for (int row = i * size; row < (i + 1) * size; ++row) *batch.add_samples() = samples[row];
    Plan(batch, noise, &exact, &all_exact);
    Plan(batch, noise, &steady, &all_steady);
    std::cout
        << nlohmann::ordered_json{{"batch", i}, {"exact", exact.ToJson()}, {"steady", steady.ToJson()}}.dump()
        << std::endl;
  }
  const auto change = [](double before, double after) { return 100 * (after / before - 1); };
  std::cout
      << nlohmann::ordered_json{{"noise", noise},
                                {"exact_lengthened_percent", change(all_exact.exact_ms, all_exact.mean_ms)},
                                {"steady_lengthened_percent",
                                 change(all_steady.exact_ms, all_steady.mean_ms)},
                                {"exact_change_percent", change(all_exact.exact_ms, all_steady.exact_ms)},
                                {"mean_change_percent", change(all_exact.mean_ms, all_steady.mean_ms)},
                                {"late_change_percent", change(all_exact.late_ms, all_steady.late_ms)},
                                {"planning_change_percent",
                                 change(all_exact.planning_ms, all_steady.planning_ms)}}
             .dump()
      << std::endl;
  return 0;
}

}  // namespace
}  // namespace penstock::core

int main(int argc, char** argv) {
  if (argc < 9) {
    std::cerr << "noise_bench PROFILE.json LENGTHS.csv FIRST_ROW SAMPLES BATCHES PP DP NOISE [SCHEDULE]\n";
    return 2;
  }
  return penstock::core::Run(argc, argv);
}
