// How soon the largest requests end when they are stopped.
//
//   build/release/bin/stop_bench [part of a name]
//
// Each request is stopped at several moments of its way, on two threads. Prints a row of JSON for each
// request: `whole_s`, how long it takes when nobody stops it (null: longer than 8 s, it was not waited for);
// `stopped_ms`, the longest time from the stop to the answer; `cpu_ms`, what the process computed meanwhile,
// for busy machines; `at_s`, the moment at which that was.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/parallel/task_pool.h"
#include "planner/core/planner.h"
#include "planner/core/verify/check_plan.h"
#include "tests/bench/bench_job.h"

namespace penstock::core {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLongestSeconds = 8;
constexpr int kMoments = 10;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Request {
  std::string name;
  std::function<absl::Status(StopToken)> run;
};

struct Run {
  double whole = 0;
  // From the stop to the answer; negative when it had ended before.
  double after_stop = 0;
  // What all threads computed meanwhile.
  double cpu_after_stop = 0;
};

double CpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

Run RunAndStop(const Request& request, double seconds) {
  StopFlag flag;
  Clock::time_point stopped = Clock::time_point::max();
  double cpu_at_stop = 0;
  std::atomic<bool> ended = false;
  const Clock::time_point start = Clock::now();
  std::thread stopper([&] {
    while (SecondsSince(start) < seconds && !ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    cpu_at_stop = CpuSeconds();
    stopped = Clock::now();
    flag.Set();
  });
  const absl::Status status = request.run(StopToken(&flag));
  const Clock::time_point answered = Clock::now();
  const double cpu = CpuSeconds();
  ended = true;
  stopper.join();
  if (!status.ok() && !absl::IsCancelled(status)) std::printf("# %s\n", status.ToString().c_str());
  return {std::chrono::duration<double>(answered - start).count(),
          std::chrono::duration<double>(answered - stopped).count(), cpu - cpu_at_stop};
}

void Measure(const Request& request) {
  const Run whole = RunAndStop(request, kLongestSeconds);
  const bool is_known = whole.after_stop < 0;
  double longest = std::max(0.0, whole.after_stop);
  double cpu = is_known ? 0 : whole.cpu_after_stop;
  double at = kLongestSeconds;
  for (int moment = 0; moment < kMoments; ++moment) {
    // More of them early, where one step follows another; later ones are alike.
    const double share = (moment + 0.5) / kMoments;
    const double seconds = std::min(whole.whole, kLongestSeconds) * (is_known ? share : share * share);
    const Run run = RunAndStop(request, seconds);
    if (run.after_stop <= longest) continue;
    longest = run.after_stop;
    cpu = run.cpu_after_stop;
    at = seconds;
  }
  std::printf(
      "{\"request\": \"%s\", \"whole_s\": %s, \"stopped_ms\": %.1f, \"cpu_ms\": %.1f, \"at_s\": %.2f}\n",
      request.name.c_str(), is_known ? std::to_string(whole.whole).c_str() : "null", longest * 1e3, cpu * 1e3,
      at);
  std::fflush(stdout);
}

// Half of each target is taken as input, so that a T5 has two lengths that differ.
v1::Batch Lengths(int64_t samples) {
  v1::Batch batch = BenchLengths(samples);
  uint32_t i = 0;
  for (v1::Sample& sample : *batch.mutable_samples()) {
    const uint32_t input = sample.target_tokens() * (7919 * i++ % 64) / 64;
    sample.set_input_tokens(input);
    sample.set_target_tokens(sample.target_tokens() - input);
  }
  return batch;
}

Request PlanRequest(const std::string& name, const v1::JobSpec& job, int64_t samples, TaskPool* pool) {
  return {name, [=, batch = Lengths(samples)](StopToken stop) {
            const auto planner = Planner::Create(job, Planner::Explain::kChanges, pool->AsFunction(), stop);
            if (!planner.ok()) return planner.status();
            return (*planner)->MakePlan(batch, pool->AsFunction(), stop).status();
          }};
}

Request CheckRequest(const std::string& name, const v1::JobSpec& job, int64_t samples) {
  const v1::Batch batch = Lengths(samples);
  const auto planner = Planner::Create(job);
  const auto plan = std::make_shared<absl::StatusOr<v1::Plan>>((*planner)->MakePlan(batch));
  return {name, [=](StopToken stop) { return CheckPlan(batch, **plan, stop).status(); }};
}

Request CreateRequest(const std::string& name, const v1::JobSpec& job, TaskPool* pool) {
  return {name, [=](StopToken stop) {
            return Planner::Create(job, Planner::Explain::kChanges, pool->AsFunction(), stop).status();
          }};
}

v1::JobSpec WithTypical(v1::JobSpec job, int64_t samples) {
  const v1::Batch lengths = BenchLengths(samples);
  for (const v1::Sample& sample : lengths.samples()) {
    job.mutable_planning()->add_typical_samples()->set_target_tokens(sample.target_tokens());
  }
  return job;
}

v1::JobSpec WithLayers(v1::JobSpec job, uint32_t layers) {
  job.mutable_model()->set_layers(layers);
  job.mutable_planning()->set_memory_limit_bytes(100'000'000'000'000);
  return job;
}

// The same lengths on both sides of a T5.
v1::JobSpec AsT5(v1::JobSpec job) {
  v1::ModelSpec* model = job.mutable_model();
  model->set_architecture(v1::ARCHITECTURE_T5);
  model->set_encoder_layers(model->layers() / 2);
  model->set_decoder_layers(model->layers() / 2);
  model->clear_layers();
  v1::LayerCost* decoder = job.mutable_profile()->mutable_layers(0);
  v1::LayerCost encoder = *decoder;
  decoder->set_name("decoder");
  decoder->mutable_forward()->set_cross_ns(decoder->forward().target_square_ns());
  encoder.set_name("encoder");
  v1::LayerTime* time = encoder.mutable_forward();
  time->set_source_token_ns(time->target_token_ns());
  time->set_source_square_ns(time->target_square_ns());
  time->clear_target_token_ns();
  time->clear_target_square_ns();
  for (v1::LayerBytes* bytes :
       {encoder.mutable_stored_none(), encoder.mutable_stored_full(), encoder.mutable_peak()}) {
    bytes->set_source_token_bytes(bytes->target_token_bytes());
    bytes->clear_target_token_bytes();
  }
  *job.mutable_profile()->add_layers() = encoder;
  return job;
}

v1::JobSpec WithPadding(v1::JobSpec job) {
  job.mutable_planning()->set_layout(v1::LAYOUT_CHOICE_PADDED);
  return job;
}

v1::JobSpec Strict(v1::JobSpec job) {
  job.mutable_planning()->set_schedule(v1::SCHEDULE_ONE_FORWARD_ONE_BACKWARD);
  return job;
}

v1::JobSpec WithMicroBatch(v1::JobSpec job, uint32_t size) {
  job.mutable_planning()->set_micro_batch_size(size);
  return job;
}

v1::JobSpec TightMemory(v1::JobSpec job) {
  const auto planner = Planner::Create(job);
  int64_t most = 0;
  for (int rank = 0; rank < (*planner)->costs().positions(); ++rank) {
    most = std::max(most, (*planner)->costs().RankStaticBytes(rank));
  }
  job.mutable_planning()->set_memory_limit_bytes(most + 2'000'000'000);
  return job;
}

void MeasureAll(const std::string& part) {
  constexpr int64_t kMany = 300'000;
  TaskPool pool(2);
  const auto plan = [&](const std::string& name, const v1::JobSpec& job, int64_t samples) {
    if (name.find(part) != std::string::npos) Measure(PlanRequest(name, job, samples, &pool));
  };
  const auto create = [&](const std::string& name, const v1::JobSpec& job) {
    if (name.find(part) != std::string::npos) Measure(CreateRequest(name, job, &pool));
  };
  const auto check = [&](const std::string& name, const v1::JobSpec& job, int64_t samples) {
    if (name.find(part) != std::string::npos) Measure(CheckRequest(name, job, samples));
  };
  plan("dynamic, 300,000 samples", BenchJob(8, 8, v1::POLICY_DYNAMIC), kMany);
  plan("dynamic 1F1B, 300,000 samples", Strict(BenchJob(8, 8, v1::POLICY_DYNAMIC)), kMany);
  plan("dynamic padded, 300,000 samples", WithPadding(BenchJob(8, 8, v1::POLICY_DYNAMIC)), kMany);
  plan("dynamic tight memory, 300,000 samples", TightMemory(BenchJob(8, 8, v1::POLICY_DYNAMIC)), kMany);
  plan("T5 dynamic, 300,000 samples", AsT5(BenchJob(8, 8, v1::POLICY_DYNAMIC)), kMany);
  plan("T5 dynamic padded, 300,000 samples", WithPadding(AsT5(BenchJob(8, 8, v1::POLICY_DYNAMIC))), kMany);
  plan("padding, 300,000 samples", BenchJob(8, 8, v1::POLICY_PADDING), kMany);
  plan("padding one by one, 300,000 samples", WithMicroBatch(BenchJob(8, 8, v1::POLICY_PADDING), 1), kMany);
  plan("padding one by one, 30,000 samples", WithMicroBatch(BenchJob(8, 8, v1::POLICY_PADDING), 1), 30'000);
  plan("concatenated, 300,000 samples", BenchJob(8, 8, v1::POLICY_CONCATENATED), kMany);
  plan("packed, 300,000 samples", BenchJob(8, 8, v1::POLICY_PACKED), kMany);
  plan("token budget, 300,000 samples", BenchJob(8, 8, v1::POLICY_TOKEN_BUDGET), kMany);
  plan("dynamic, 4,096 samples on 1,024 stages", WithLayers(BenchJob(1024, 1, v1::POLICY_DYNAMIC), 1024),
       4096);
  plan("dynamic, 4,096 layers", WithLayers(BenchJob(8, 1, v1::POLICY_DYNAMIC), 4096), 1024);
  create("stage choice, 1,024 typical samples", WithTypical(BenchJob(8, 2, v1::POLICY_DYNAMIC), 1024));
  create("stage choice, 65,536 typical samples", WithTypical(BenchJob(8, 2, v1::POLICY_DYNAMIC), 65536));
  create("stage choice, 4,096 layers",
         WithTypical(WithLayers(BenchJob(8, 2, v1::POLICY_DYNAMIC), 4096), 1024));
  create("stage choice, 4,096 layers on 1,024 ranks",
         WithTypical(WithLayers(BenchJob(1024, 2, v1::POLICY_DYNAMIC), 4096), 1024));
  create("stage balance, 4,096 layers on 1,024 x 64 ranks",
         WithLayers(BenchJob(1024, 64, v1::POLICY_DYNAMIC), 4096));
  check("check, 30,000 samples dynamic", BenchJob(8, 8, v1::POLICY_DYNAMIC), 30'000);
}

}  // namespace
}  // namespace penstock::core

int main(int argc, char** argv) { penstock::core::MeasureAll(argc > 1 ? argv[1] : ""); }
