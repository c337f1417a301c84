// What the memory estimate of a batch takes in the calls that ask for it, beside what else they do.
//
//   build/release/bin/admission_bench [POSITIONS] [REPLICAS]
//
// A row of JSON for each policy, kind of lengths (mixed, and 8,192 tokens each) and number of samples;
// medians of processor time (others may use the machine), in microseconds. SubmitBatches: check_us (every
// sample has memory on every stage), estimate_us (what planning takes, against the room there is), keep_us
// (bytes, hash and copy). PlanBatch of a job that it brings itself: admit_us (with a planner that is made for
// it), of which estimate_us. `micro_batches`: that were foreseen.
#include <time.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "planner/service/engine/planning_room.h"
#include "planner/service/main/core_backend.h"
#include "planner/service/state/admission.h"
#include "tests/bench/bench_job.h"
#include "tests/bench/median.h"

namespace penstock {
namespace {

constexpr int64_t kSamples[] = {64, 1'000, 4'000, 20'000, 100'000};
constexpr v1::Policy kPolicies[] = {v1::POLICY_PADDING, v1::POLICY_PACKED, v1::POLICY_DYNAMIC};
// Each call is repeated for so long, and at least so often.
constexpr double kMicroseconds = 300'000;
constexpr int kFewest = 3;

v1::Batch BatchOf(bool even, int64_t samples) {
  if (!even) return core::BenchLengths(samples);
  v1::Batch batch;
  for (int64_t i = 0; i < samples; ++i) batch.add_samples()->set_target_tokens(8192);
  return batch;
}

// Of this thread, which makes the calls.
double ProcessorMicroseconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

template <typename Call>
double MedianMicroseconds(Call call) {
  std::vector<double> times;
  double sum = 0;
  while (sum < kMicroseconds || times.size() < kFewest) {
    const double start = ProcessorMicroseconds();
    call();
    times.push_back(ProcessorMicroseconds() - start);
    sum += times.back();
  }
  return bench::Median(times);
}

// Ends the process: a benchmark of a call that fails says nothing.
template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::cerr << value.status() << "\n";
  std::exit(1);
}

void Measure(const v1::JobSpec& job, bool even, int64_t samples) {
  const CorePlannerFactory factory;
  const std::unique_ptr<BatchPlanner> planner = OrDie(factory.Create(job, {}, {}, core::StopToken()));
  const v1::Batch batch = BatchOf(even, samples);
  core::PlanningShape shape;
  const double check = MedianMicroseconds([&] { return planner->CheckBatch(batch, core::StopToken()).ok(); });
  const double estimate = MedianMicroseconds([&] {
    shape = OrDie(planner->ShapeOf(batch));
    return CheckRoom("batch.samples", shape, core::PlanningRoom()).ok();
  });
  const double keep = MedianMicroseconds([&] {
    const std::string bytes = batch.SerializeAsString();
    const auto copy = std::make_shared<const v1::Batch>(batch);
    return penstock::ContentHash(bytes).size() + static_cast<size_t>(copy->samples_size());
  });
  const double admit = MedianMicroseconds([&] { return OrDie(factory.ShapeOf(job, &batch)).samples; });
  std::cout << R"({"policy": ")" << v1::Policy_Name(job.planning().policy()) << R"(", "lengths": ")"
            << (even ? "even" : "mixed") << R"(", "samples": )" << samples << R"(, "check_us": )" << check
            << R"(, "estimate_us": )" << estimate << R"(, "keep_us": )" << keep << R"(, "admit_us": )"
            << admit << R"(, "micro_batches": )" << core::FootprintOf(shape).micro_batches << "}"
            << std::endl;
}

int Main(int argc, char** argv) {
  const auto positions = static_cast<uint32_t>(argc > 1 ? std::atoi(argv[1]) : 8);
  const auto replicas = static_cast<uint32_t>(argc > 2 ? std::atoi(argv[2]) : 4);
  for (const v1::Policy policy : kPolicies) {
    v1::JobSpec job = core::BenchJob(positions, replicas, policy);
    job.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_EVEN);
    for (const bool even : {false, true}) {
      for (const int64_t samples : kSamples) Measure(job, even, samples);
    }
  }
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::Main(argc, argv); }
