// What planning takes, as a function of samples, replicas, positions and lengths: memory of the process at
// its most, of the plan that is kept, and bytes of messages. What the estimate of the service
// (planner/core/footprint) is fitted to.
//
//   build/release/bin/planning_memory_bench SAMPLES REPLICAS POSITIONS TENSOR CONTEXT LENGTHS [POLICY]
//   [THREADS] [MICRO_BATCH_SIZE]
//
// LENGTHS: mixed (bench_job.h), short (16 tokens each), long (8192 tokens each: a micro-batch for each), or
// drawn:SEED (drawn_lengths.h). tests/bench/planning_memory_shapes runs it over shapes that are drawn.
// Prints a line: the arguments, then peak_bytes (resident, above that before planning; plan and check),
// full, kept, message and program: bytes of the plan, in full and as it is kept (common/compact), of the same
// as messages, and of the largest program; estimates of those that are compact; micro_batches, instructions,
// seconds, and seconds of packing and of unpacking. One shape a process, so that nothing of another is
// counted.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "common/parallel/task_pool.h"
#include "common/process/freed_memory.h"
#include "planner/core/planner.h"
#include "planner/core/verify/check_plan.h"
#include "planner/service/engine/program_message.h"
#include "tests/bench/bench_job.h"
#include "tests/bench/drawn_lengths.h"

namespace penstock {
namespace {

v1::Batch LengthsOf(const std::string& kind, int64_t samples) {
  constexpr char kDrawn[] = "drawn:";
  if (kind == "mixed") return core::BenchLengths(samples);
  if (kind.rfind(kDrawn, 0) == 0)
    return core::DrawnBatch(std::strtoull(kind.c_str() + sizeof(kDrawn) - 1, nullptr, 10), samples);
  v1::Batch batch;
  for (int64_t i = 0; i < samples; ++i) batch.add_samples()->set_target_tokens(kind == "short" ? 16 : 8192);
  return batch;
}

size_t MostResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    size_t kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

double Since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

v1::JobSpec JobOf(char** argv) {
  v1::JobSpec job = core::BenchJob(static_cast<uint32_t>(std::atoi(argv[3])),
                                   static_cast<uint32_t>(std::atoi(argv[2])), v1::POLICY_DYNAMIC);
  const auto positions = static_cast<uint32_t>(std::atoi(argv[3]));
  if (job.model().layers() < positions) job.mutable_model()->set_layers(positions);
  job.mutable_mesh()->set_tensor(static_cast<uint32_t>(std::atoi(argv[4])));
  job.mutable_mesh()->set_context(static_cast<uint32_t>(std::atoi(argv[5])));
  job.mutable_planning()->set_stage_split(v1::STAGE_SPLIT_EVEN);
  return job;
}

int Main(int argc, char** argv) {
  if (argc < 7) {
    std::cerr << "planning_memory_bench SAMPLES REPLICAS POSITIONS TENSOR CONTEXT LENGTHS [POLICY] [THREADS] "
                 "[MICRO_BATCH_SIZE]\n";
    return 2;
  }
  v1::JobSpec job = JobOf(argv);
  if (argc > 7) {
    v1::Policy policy;
    if (!v1::Policy_Parse(argv[7], &policy)) return 2;
    job.mutable_planning()->set_policy(policy);
  }
  if (argc > 9) job.mutable_planning()->set_micro_batch_size(static_cast<uint32_t>(std::atoi(argv[9])));
  const v1::Batch batch = LengthsOf(argv[6], std::atoll(argv[1]));
  TaskPool pool(argc > 8 ? std::atoi(argv[8]) : 2);
  const auto planner = core::Planner::Create(job);
  if (!planner.ok()) return std::cerr << planner.status() << "\n", 1;
  const core::PlanningShape shape = *(*planner)->ShapeOf(batch);
  const core::PlanningFootprint estimate = core::FootprintOf(shape);
  const size_t before = ResidentBytes();
  const auto start = std::chrono::steady_clock::now();
  const absl::StatusOr<v1::Plan> plan = (*planner)->MakePlan(batch, pool.AsFunction());
  if (!plan.ok()) return std::cerr << plan.status() << "\n", 1;
  const size_t planned = MostResidentBytes() - before;
  if (!core::CheckPlan(batch, *plan).empty()) return 1;
  const size_t checked = MostResidentBytes() - before;
  const double seconds = Since(start);
  size_t micro_batches = 0, instructions = 0, program_bytes = 0, full_program_bytes = 0, columns = 0;
  for (const v1::Replica& replica : plan->replicas()) micro_batches += replica.micro_batches_size();
  for (const v1::Program& program : plan->programs()) instructions += program.instructions_size();
  const int ranks = plan->programs_size();
  const auto packing = std::chrono::steady_clock::now();
  const PackedPlan packed(*plan);
  const double packing_seconds = Since(packing);
  const auto unpacking = std::chrono::steady_clock::now();
  if (packed.Plan()->ByteSizeLong() != plan->ByteSizeLong()) return 1;
  const double unpacking_seconds = Since(unpacking);
  for (int rank = 0; rank < ranks; ++rank) columns += packed.columns(rank).size();
  for (int rank = 0; rank<ranks; rank += ranks> 64 ? ranks / 64 : 1) {
    full_program_bytes = std::max(full_program_bytes, MakeProgramMessage(batch, *plan, rank).ByteSizeLong());
    program_bytes = std::max(program_bytes,
                             MakeProgramMessage(batch, packed, rank, {}, /*compact=*/true)->ByteSizeLong());
  }
  for (int i = 1; i <= 6; ++i) std::cout << argv[i] << " ";
  std::cout << (argc > 7 ? argv[7] : "POLICY_DYNAMIC") << " peak " << checked << " planning " << planned
            << " full kept " << plan->SpaceUsedLong() << " message " << plan->ByteSizeLong() << " program "
            << full_program_bytes << " compact kept " << packed.bytes() << " message "
            << packed.frame().ByteSizeLong() + columns << " program " << program_bytes << " columns "
            << columns << " estimate " << estimate.planning_bytes << " kept " << estimate.plan_bytes
            << " message " << estimate.plan_message_bytes << " program " << estimate.program_message_bytes
            << " micro_batches " << estimate.micro_batches << " roomy " << shape.roomy << " fill "
            << shape.longest_fill << " packed " << shape.packed << " size " << shape.micro_batch_size
            << " micro_batches " << micro_batches << " instructions " << instructions << " seconds "
            << seconds << " packing " << packing_seconds << " unpacking " << unpacking_seconds << std::endl;
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::Main(argc, argv); }
