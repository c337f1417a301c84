#include "tests/unit/core/pipeline_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <utility>

#include "planner/core/contract/batch_from_proto.h"
#include "planner/core/contract/content_hash.h"
#include "planner/core/contract/job_from_proto.h"
#include "planner/core/contract/plan_to_proto.h"
#include "planner/core/contract/profile_from_proto.h"
#include "planner/core/schedule/pipeline_timeline.h"
#include "planner/core/simulate/memory_account.h"
#include "planner/core/simulate/simulator.h"
#include "planner/core/verify/check_plan.h"
#include "tests/unit/core/event_memory.h"
#include "tests/unit/core/job_builder.h"

namespace penstock::core {
namespace {

// check_plan.h.
constexpr int kMemoryRule = 6;

PassKind KindOf(char letter) {
  switch (letter) {
    case 'F':
      return PassKind::kForward;
    case 'B':
      return PassKind::kBackward;
    case 'I':
      return PassKind::kBackwardInput;
    default:
      return PassKind::kBackwardWeight;
  }
}

Op OpOf(PassKind kind) {
  switch (kind) {
    case PassKind::kForward:
      return Op::kForward;
    case PassKind::kBackward:
      return Op::kBackward;
    case PassKind::kBackwardInput:
      return Op::kBackwardInput;
    case PassKind::kBackwardWeight:
      return Op::kBackwardWeight;
  }
  return Op::kForward;
}

v1::JobSpec Place(v1::JobSpec job, const std::vector<uint32_t>& layers_per_stage,
                  const std::vector<uint32_t>& position_of_stage) {
  v1::PlanningOptions* planning = job.mutable_planning();
  planning->mutable_layers_per_stage()->Add(layers_per_stage.begin(), layers_per_stage.end());
  planning->mutable_rank_of_stage()->Add(position_of_stage.begin(), position_of_stage.end());
  return job;
}

// Start of the instruction with this key on a rank; -1 when there is none.
int64_t StartOf(const ProgramSet& programs, const Simulator& simulator, int rank, const Instruction& key) {
  for (int32_t i = programs.rank_begin[rank]; i < programs.rank_begin[rank + 1]; ++i) {
    const Instruction& other = programs.instructions[i];
    if (other.op == key.op && other.part == key.part && other.stage == key.stage &&
        other.micro_batch == key.micro_batch) {
      return simulator.start_ns()[i];
    }
  }
  return -1;
}

void ExpectTimesOfTimeline(const ReplicaPipeline& replica, int first_rank, const ProgramSet& programs,
                           const Simulator& simulator) {
  PipelineTimeline timeline;
  ASSERT_TRUE(timeline.Run(replica.costs, replica.passes));
  for (const PipelineEvent& event : timeline.events()) {
    Instruction key;
    key.micro_batch = event.micro_batch;
    key.stage = event.stage;
    if (event.kind == EventKind::kPassStart) {
      key.op = OpOf(event.pass);
    } else if (event.kind == EventKind::kTransferStart) {
      key.op = Op::kSend;
      key.part = event.gradient ? kGradientPart : kActivationPart;
      key.stage = event.gradient ? event.stage + 1 : event.stage;
    } else {
      continue;
    }
    const int rank = first_rank + replica.costs.position_of_stage[key.stage];
    EXPECT_EQ(StartOf(programs, simulator, rank, key), event.time_ns)
        << "op " << static_cast<int>(key.op) << ", stage " << key.stage << ", micro-batch "
        << key.micro_batch;
  }
}

void ExpectTimeAddsUp(const v1::Prediction& predicted) {
  for (const v1::RankPrediction& rank : predicted.ranks()) {
    const v1::Bubble& bubble = rank.bubble();
    const int64_t parts[] = {rank.busy_ns(),         bubble.fill_ns(),     bubble.drain_ns(),
                             bubble.dependency_ns(), bubble.transfer_ns(), bubble.imbalance_ns(),
                             bubble.memory_ns()};
    int64_t sum = 0;
    for (const int64_t part : parts) {
      EXPECT_GE(part, 0);
      sum += part;
    }
    EXPECT_EQ(sum, predicted.makespan_ns());
  }
}

// Which passes of a pipeline have run.
class Progress {
 public:
  Progress(const PipelineCosts& costs, uint32_t split_percent, std::mt19937* random)
      : costs_(costs), split_(costs.forward_ns.size()), run_(costs.forward_ns.size(), 0) {
    for (size_t i = 0; i < split_.size(); ++i) split_[i] = (*random)() % 100 < split_percent ? 1 : 0;
  }

  // The pass that a micro-batch may run next on a stage.
  bool Next(int stage, int micro_batch, Pass* pass) const {
    const size_t at = costs_.at(micro_batch, stage);
    if (run_[at] == 0) {
      *pass = {PassKind::kForward, stage, micro_batch};
      // Micro-batches enter in their order.
      if (stage == 0) return micro_batch == 0 || run_[costs_.at(micro_batch - 1, 0)] > 0;
      return run_[at - 1] > 0;
    }
    if (run_[at] == 1) {
      *pass = {split_[at] != 0 ? PassKind::kBackwardInput : PassKind::kBackward, stage, micro_batch};
      return stage + 1 == costs_.stages || run_[at + 1] > 1;
    }
    *pass = {PassKind::kBackwardWeight, stage, micro_batch};
    return run_[at] == 2 && split_[at] != 0;
  }
  void Run(const Pass& pass) { ++run_[costs_.at(pass.micro_batch, pass.stage)]; }

 private:
  const PipelineCosts& costs_;
  std::vector<uint8_t> split_;
  // Passes that a micro-batch has run on a stage.
  std::vector<uint8_t> run_;
};

}  // namespace

RankPasses ParsePasses(const std::vector<std::string>& ranks) {
  RankPasses passes;
  passes.rank_begin.push_back(0);
  for (const std::string& rank : ranks) {
    std::istringstream words(rank);
    for (std::string word; words >> word;) {
      const size_t dot = word.find('.');
      passes.passes.push_back(
          {KindOf(word[0]), std::stoi(word.substr(1, dot - 1)), std::stoi(word.substr(dot + 1))});
    }
    passes.rank_begin.push_back(static_cast<int32_t>(passes.passes.size()));
  }
  return passes;
}

RankPasses RandomPasses(const PipelineCosts& costs, uint32_t split_percent, std::mt19937* random) {
  Progress progress(costs, split_percent, random);
  std::vector<std::vector<Pass>> lists(costs.positions);
  std::vector<Pass> ready;
  while (true) {
    ready.clear();
    for (int m = 0; m < costs.micro_batches; ++m) {
      for (int stage = 0; stage < costs.stages; ++stage) {
        Pass pass;
        if (progress.Next(stage, m, &pass)) ready.push_back(pass);
      }
    }
    if (ready.empty()) break;
    const Pass& chosen = ready[(*random)() % ready.size()];
    progress.Run(chosen);
    lists[costs.position_of_stage[chosen.stage]].push_back(chosen);
  }
  RankPasses passes;
  passes.rank_begin.push_back(0);
  for (const std::vector<Pass>& list : lists) {
    passes.passes.insert(passes.passes.end(), list.begin(), list.end());
    passes.rank_begin.push_back(static_cast<int32_t>(passes.passes.size()));
  }
  return passes;
}

PipelineCase::PipelineCase(v1::JobSpec job, const std::vector<uint32_t>& layers_per_stage,
                           const std::vector<uint32_t>& position_of_stage, int micro_batches, uint32_t seed)
    : spec_(Place(std::move(job), layers_per_stage, position_of_stage)),
      job_(JobFromProto(spec_).value()),
      costs_(ProfileFromProto(spec_.profile(), job_.architecture).value(), job_) {
  std::mt19937 random(seed);
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  for (int m = 0; m < job_.topology.replicas() * micro_batches; ++m) {
    for (uint32_t samples = 1 + random() % 3; samples > 0; --samples) {
      lengths.emplace_back(1 + random() % 300, 1 + random() % 200);
    }
    assignment_.resize(1 + m / micro_batches);
    MicroBatch micro_batch;
    micro_batch.layout = random() % 2 == 0 ? Layout::kPadded : Layout::kPacked;
    const size_t before = batch_.samples.size();
    batch_.samples.resize(lengths.size());
    for (size_t sample = before; sample < lengths.size(); ++sample) {
      micro_batch.samples.push_back(static_cast<uint32_t>(sample));
    }
    for (const Stage& stage : job_.topology.shape().stages) {
      const int full = static_cast<int>(random() % (stage.layers() + 1));
      micro_batch.recompute.push_back({0, random() % 2 == 0 ? full : 0});
    }
    assignment_.back().push_back(micro_batch);
  }
  proto_ = MakeBatch(lengths);
  batch_ = BatchFromProto(proto_, job_).value();
  for (int replica = 0; replica < job_.topology.replicas(); ++replica) AddReplica(micro_batches, &random);
}

void PipelineCase::AddReplica(int micro_batches, std::mt19937* random) {
  const auto index = static_cast<int>(replicas_.size());
  const std::vector<MicroBatch>& assigned = assignment_[replicas_.size()];
  ReplicaPipeline& replica = replicas_.emplace_back();
  replica.costs.Resize(costs_.stages(), micro_batches);
  replica.costs.positions = costs_.positions();
  replica.costs.position_of_stage = costs_.position_of_stage();
  // Links from ones that hide to ones that take longer than the passes.
  const auto slowness = static_cast<int64_t>(1 + (*random)() % 20);
  for (int m = 0; m < micro_batches; ++m) {
    const TokenSums sums = SumsOf(assigned[m].samples, batch_.samples, assigned[m].layout);
    LayerCosts layers;
    ASSERT_TRUE(costs_.Layers(sums, &layers));
    for (int stage = 0; stage < costs_.stages(); ++stage) {
      const size_t at = replica.costs.at(m, stage);
      replica.memory.push_back(costs_.Memory(stage, sums));
      replica.recompute.push_back(assigned[m].recompute[stage]);
      replica.costs.forward_ns[at] = costs_.ForwardNs(stage, layers);
      replica.costs.backward_ns[at] = costs_.BackwardNs(stage, layers, replica.recompute.back());
      replica.costs.weight_ns[at] = costs_.WeightNs(stage, layers);
      if (stage + 1 == costs_.stages() || costs_.position_of(stage) == costs_.position_of(stage + 1))
        continue;
      replica.costs.transfer_ns[at] =
          slowness * costs_.TransferNs(replica.memory.back().output, job_.topology.RankOf(index, stage),
                                       job_.topology.RankOf(index, stage + 1));
    }
  }
}

void PipelineCase::ExpectMemoryOfEvents(const ProgramSet& programs,
                                        const std::vector<RankMemory>& memory) const {
  for (size_t replica = 0; replica < replicas_.size(); ++replica) {
    PipelineTimeline timeline;
    ASSERT_TRUE(timeline.Run(replicas_[replica].costs, replicas_[replica].passes));
    const std::vector<int64_t> peaks = PeakBytes(costs_, replicas_[replica], timeline.events());
    for (size_t position = 0; position < peaks.size(); ++position) {
      const size_t rank = replica * peaks.size() + position;
      EXPECT_EQ(memory[rank].peak_bytes - programs.static_bytes[rank], peaks[position]) << "rank " << rank;
    }
  }
}

ScheduleFamily PipelineCase::Family() const {
  for (const ReplicaPipeline& replica : replicas_) {
    for (const Pass& pass : replica.passes.passes) {
      if (pass.kind == PassKind::kBackwardWeight) return ScheduleFamily::kSplitBackward;
    }
  }
  return costs_.stages() > costs_.positions() ? ScheduleFamily::kInterleaved : ScheduleFamily::kReadyFirst;
}

ProgramSet PipelineCase::Programs() const { return BuildPrograms(costs_, replicas_).value(); }

v1::Plan PipelineCase::ExpectSound() const {
  const auto programs = BuildPrograms(costs_, replicas_);
  EXPECT_TRUE(programs.ok()) << programs.status();
  if (!programs.ok()) return {};
  Simulator simulator;
  const absl::Status simulated = simulator.Run(*programs);
  EXPECT_TRUE(simulated.ok()) << simulated;
  if (!simulated.ok()) return {};
  for (size_t replica = 0; replica < replicas_.size(); ++replica) {
    ExpectTimesOfTimeline(replicas_[replica], static_cast<int>(replica) * costs_.positions(), *programs,
                          simulator);
  }
  const std::vector<RankMemory> memory = AccountMemory(*programs);
  ExpectMemoryOfEvents(*programs, memory);
  for (int rank = 0; rank < programs->ranks(); ++rank) {
    EXPECT_EQ(memory[rank].final_bytes, costs_.RankStaticBytes(job_.topology.PlaceOf(rank).position));
  }
  v1::Plan plan = PlanToProto(
      {spec_, job_, batch_, costs_, assignment_, *programs, simulator, /*lower_bound_ns=*/0, Family()});
  plan.set_content_hash(ContentHash(plan));
  ExpectTimeAddsUp(plan.predicted());
  // No order that streams and deps allow needs more than that of the program.
  v1::Plan tight = plan;
  for (int rank = 0; rank < plan.programs_size(); ++rank) {
    tight.mutable_programs(rank)->set_memory_limit_bytes(plan.predicted().ranks(rank).peak_memory_bytes());
  }
  for (const Violation& violation : CheckPlan(proto_, tight)) {
    if (violation.rule == kMemoryRule) ADD_FAILURE() << violation.message;
  }
  for (const Violation& violation : CheckPlan(proto_, plan)) {
    ADD_FAILURE() << "rule " << violation.rule << ": " << violation.message;
  }
  return plan;
}

}  // namespace penstock::core
