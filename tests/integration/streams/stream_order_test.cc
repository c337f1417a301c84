// Plans of the planner on streams that write down what is asked of them: the host never waits inside an
// iteration, streams wait where a dep says so and nowhere else, and no pass can see a tensor before it is
// there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/integration/planned_programs.h"
#include "tests/integration/streams/happens_before.h"
#include "tests/integration/streams/recorded_ranks.h"
#include "worker/program/describe.h"

namespace penstock {
namespace {

using worker::Call;
using worker::Edge;
using worker::HappensBefore;
using worker::Instruction;
using worker::Op;
using worker::Program;
using worker::Recorded;
using worker::RecordedRun;
using worker::ReshardPart;
using worker::Stream;
using worker::TransferKind;

bool IsTransfer(const Instruction& instruction) {
  return instruction.op == Op::kSend || instruction.op == Op::kRecv;
}

bool IsBackward(const Instruction& instruction) {
  return instruction.op == Op::kBackward || instruction.op == Op::kBackwardInput;
}

// Whether `earlier` makes, or brings, a tensor that `later` reads.
bool Feeds(const Program& program, const Instruction& earlier, const Instruction& later) {
  if (earlier.op == Op::kReduceGradients) return later.op == Op::kOptimizerStep;
  if (earlier.op == Op::kReshard) {
    const bool parameters = earlier.part == static_cast<uint32_t>(ReshardPart::kParameters);
    return parameters ? later.op == Op::kForward || IsBackward(later) : later.op == Op::kOptimizerStep;
  }
  if (later.op == Op::kReshard) return IsBackward(earlier) || earlier.op == Op::kBackwardWeight;
  if (earlier.stage != later.stage) return false;
  const bool backward = IsBackward(earlier) || earlier.op == Op::kBackwardWeight;
  if (later.op == Op::kReduceGradients) return backward;
  if (earlier.micro_batch != later.micro_batch || !(IsTransfer(earlier) || IsTransfer(later))) return false;
  const bool activation =
      program.transfers[(IsTransfer(earlier) ? earlier : later).transfer].kind == TransferKind::kActivation;
  if (earlier.op == Op::kRecv) return activation ? later.op == Op::kForward : IsBackward(later);
  if (later.op == Op::kSend) return activation ? earlier.op == Op::kForward : IsBackward(earlier);
  return false;
}

bool WaitsForASend(const Program& program, const Instruction& instruction) {
  return instruction.op == Op::kWait && program.instructions[instruction.transfer].op == Op::kSend;
}

void ExpectNoHostWaitBeforeTheEnd(const RecordedRun& run) {
  const auto is_host = [](const Recorded& recorded) {
    return recorded.call == Call::kHostWait || recorded.call == Call::kHostRead;
  };
  const auto first = std::ranges::find_if(run.recording, is_host);
  ASSERT_NE(first, run.recording.end());
  EXPECT_EQ(first->call, Call::kHostWait);
  EXPECT_TRUE(std::all_of(first + 1, run.recording.end(), [](const Recorded& recorded) {
    return recorded.call == Call::kHostRead;
  })) << "one wait, behind everything that is launched, and then only reading";
}

void ExpectEdgesFromDeps(const Program& program, const HappensBefore& order) {
  for (const Edge& edge : order.edges()) {
    const Instruction& to = program.instructions[edge.to];
    const bool awaited = to.op == Op::kWait && to.transfer == edge.from;
    EXPECT_TRUE(awaited || std::ranges::count(to.deps, edge.from) > 0)
        << Describe(program, to) << " waits for " << Describe(program, program.instructions[edge.from])
        << ", which is no dep of it";
    EXPECT_NE(to.stream, program.instructions[edge.from].stream) << "a stream is in order by itself";
  }
}

void ExpectDepsOrdered(const Program& program, const HappensBefore& order) {
  for (const Instruction& later : program.instructions) {
    if (WaitsForASend(program, later)) continue;
    for (const uint32_t dep : later.deps) {
      EXPECT_TRUE(order.Ordered(dep, later.id)) << Describe(program, later) << " does not wait for "
                                                << Describe(program, program.instructions[dep]);
    }
  }
}

// Pairs of instructions of which one reads what the other makes, and that no order holds apart.
int Races(const Program& program, const HappensBefore& order) {
  int races = 0;
  for (const Instruction& later : program.instructions) {
    for (uint32_t id = 0; id < later.id; ++id) {
      if (Feeds(program, program.instructions[id], later) && !order.Ordered(id, later.id)) ++races;
    }
  }
  return races;
}

void ExpectTransfersOnTheirStreams(const Program& program, const RecordedRun& run) {
  for (const Recorded& recorded : run.recording) {
    if (recorded.call != Call::kSet || recorded.mark >= program.instructions.size()) continue;
    EXPECT_EQ(recorded.stream, program.instructions[recorded.mark].stream);
  }
  // The norm and the votes of OPTIMIZER_STEP, and with divided state what it gathers.
  const auto joined = std::ranges::count(run.recording, Recorded{.call = Call::kJoin});
  EXPECT_LE(joined, 2 + 2 * static_cast<int>(program.stages.size()))
      << "computing waits for no transfer itself";
}

std::vector<Program> FirstPrograms(const v1::JobSpec& job, worker::JobConfig& config) {
  const v1::Plan plan = PlanOf(job);
  const absl::StatusOr<worker::JobConfig> made = ConfigOf(job, plan.topology());
  EXPECT_TRUE(made.ok()) << made.status();
  config = *made;
  std::vector<Program> programs;
  for (const std::vector<Program>& of_rank : ProgramsOf(config, plan)) programs.push_back(of_rank.front());
  return programs;
}

class EveryRecordedSchedule : public ::testing::TestWithParam<ScheduleCase> {};

// Runs the program of each rank, recorded, and calls `also` with each run that is as it must be.
void ExpectOrderedByDeps(const v1::JobSpec& job, const std::function<void(const RecordedRun&)>& also) {
  worker::JobConfig config;
  const std::vector<Program> programs = FirstPrograms(job, config);
  for (uint32_t rank = 0; rank < programs.size(); ++rank) {
    SCOPED_TRACE(testing::Message() << "rank " << rank);
    const Program& program = programs[rank];
    const RecordedRun run = RunRecorded(config, rank, program);
    ASSERT_TRUE(run.status.ok()) << run.status;
    const HappensBefore order(program, run.recording);
    ExpectNoHostWaitBeforeTheEnd(run);
    ExpectEdgesFromDeps(program, order);
    ExpectDepsOrdered(program, order);
    EXPECT_EQ(Races(program, order), 0);
    ExpectTransfersOnTheirStreams(program, run);
    also(run);
  }
}

TEST_P(EveryRecordedSchedule, IsOrderedByItsDepsAndTheHostDoesNotWait) {
  ExpectOrderedByDeps(JobOf(GetParam()), [](const RecordedRun&) {});
}

// With shares of parameters: packing, the exchange and unpacking are on the collective stream alone.
TEST_P(EveryRecordedSchedule, IsOrderedByItsDepsWhereItReshards) {
  ExpectOrderedByDeps(OnShares(JobOf(GetParam())), [](const RecordedRun& run) {
    EXPECT_EQ(std::ranges::count(run.recording, Recorded{Call::kJoin, Stream::kCollective, 0}), 2);
  });
}

INSTANTIATE_TEST_SUITE_P(Recorded, EveryRecordedSchedule, ::testing::ValuesIn(ScheduleCases()),
                         [](const auto& info) { return NameOf(info.param); });

// On one stage, whose transfers depend on the spans no more: every sample that is long enough is divided.
TEST(RecordedStageGroupTest, PassesExchangeOnTheStreamThatTheyRunOn) {
  v1::JobSpec job = JobOf({.pipeline = 1, .data = 1});
  job.mutable_mesh()->set_context(2);
  worker::JobConfig config;
  Program program = FirstPrograms(job, config)[1];
  program.micro_batches.resize(1);
  std::erase_if(program.instructions,
                [](const Instruction& instruction) { return instruction.micro_batch > 0; });
  for (Instruction& instruction : program.instructions) instruction.deps.clear();
  for (uint32_t id = 0; id < program.instructions.size(); ++id) {
    Instruction& instruction = program.instructions[id];
    instruction.id = id;
    if (id > 0) instruction.deps = {id - 1};
  }
  worker::MicroBatch& shape = program.micro_batches[0];
  for (size_t row = 0; row < shape.spans.size(); ++row) {
    if (shape.input_tokens[row] + shape.target_tokens[row] >= 4) shape.spans[row] = {.first = 0, .ranks = 2};
  }
  const RecordedRun run = RunRecorded(config, program.rank, program);
  ASSERT_TRUE(run.status.ok()) << run.status;
  ExpectNoHostWaitBeforeTheEnd(run);
  const auto exchanges = std::ranges::count(run.recording, Call::kExchange, &Recorded::call);
  // Keys and values forward and, where they are gathered again and their gradients come back, backward.
  EXPECT_GE(exchanges, 3 * config.model.layers);
  EXPECT_EQ(std::ranges::count(run.recording, Recorded{Call::kExchange, Stream::kCompute, 0}), exchanges);
}

class RecordedOrderTest : public ::testing::Test {
 protected:
  RecordedOrderTest() : programs_(FirstPrograms(JobOf({.pipeline = 2, .data = 2}), config_)) {}

  RecordedRun Run(const Program& program) const {
    RecordedRun run = RunRecorded(config_, program.rank, program);
    EXPECT_TRUE(run.status.ok()) << run.status;
    return run;
  }

  worker::JobConfig config_;
  std::vector<Program> programs_;
};

TEST_F(RecordedOrderTest, WithoutADepNothingHoldsInstructionsApart) {
  Program program = programs_[0];
  const auto send = std::ranges::find(program.instructions, Op::kSend, &Instruction::op);
  ASSERT_NE(send, program.instructions.end());
  send->deps.clear();
  EXPECT_GT(Races(program, HappensBefore(program, Run(program).recording)), 0)
      << "the order comes from the deps and from nothing else";
}

TEST_F(RecordedOrderTest, AHostThatReadsInTheMiddleGetsAnError) {
  EXPECT_FALSE(worker::ReadValue().ok());
  EXPECT_FALSE(worker::CopyToHost().ok());
}

TEST_F(RecordedOrderTest, ASendIsNotWaitedFor) {
  for (const Program& program : programs_) {
    const HappensBefore order(program, Run(program).recording);
    for (const Edge& edge : order.edges()) {
      const bool computes = program.instructions[edge.to].stream == Stream::kCompute;
      EXPECT_FALSE(computes && program.instructions[edge.from].op == Op::kSend)
          << Describe(program, program.instructions[edge.to]);
    }
  }
}

TEST_F(RecordedOrderTest, WhatIsSentOrReceivedBelongsToBothStreams) {
  for (const Program& program : programs_) {
    const auto transfers = std::ranges::count_if(program.instructions, IsTransfer);
    const auto recording = Run(program).recording;
    EXPECT_EQ(std::ranges::count(recording, Call::kUse, &Recorded::call), transfers)
        << "once each: what is sent by the transfer's stream, what was received by the computing one";
  }
}

TEST_F(RecordedOrderTest, ReductionsRunBesideWhatFollowsThem) {
  const Program& program = programs_[0];
  const auto recording = Run(program).recording;
  const auto joined = std::ranges::find(recording, Recorded{Call::kJoin, Stream::kCollective, 0});
  EXPECT_NE(joined, recording.end()) << "the stream of the reductions waits for them";
}

// What was started on a stream behind the end of `before` and before that of `instruction`.
ptrdiff_t Starts(const std::vector<Recorded>& recording, Stream stream, const Instruction& before,
                 const Instruction& instruction) {
  const auto from = std::ranges::find(recording, Recorded{Call::kSet, before.stream, before.id});
  const auto to = std::ranges::find(recording, Recorded{Call::kSet, instruction.stream, instruction.id});
  EXPECT_TRUE(from < to && to < recording.end());
  return std::count(from, to, Recorded{.call = Call::kStart, .stream = stream});
}

TEST(RecordedBucketsTest, AreReducedWhileTheLastPassOfTheirStageRuns) {
  v1::JobSpec job = JobOf({.pipeline = 2, .data = 2});
  // A layer is larger than a bucket has to be; there are four on each stage.
  job.mutable_model()->set_hidden(1024);
  job.mutable_model()->set_ffn(4096);
  worker::JobConfig config;
  for (const Program& program : FirstPrograms(job, config)) {
    const RecordedRun run = RunRecorded(config, program.rank, program);
    ASSERT_TRUE(run.status.ok()) << run.status;
    const auto reduce = std::ranges::find(program.instructions, Op::kReduceGradients, &Instruction::op);
    ASSERT_NE(reduce, program.instructions.end());
    auto last = reduce;
    while (!IsBackward(*last)) --last;
    const Instruction& before = program.instructions[last->id - 1];
    // The first stage's embeddings are a bucket, too, and come last.
    const ptrdiff_t left = program.stages.front() == 0 ? 1 : 0;
    EXPECT_EQ(Starts(run.recording, Stream::kCompute, before, *last), 4)
        << "behind what the pass has launched";
    EXPECT_EQ(Starts(run.recording, Stream::kCollective, *last, *reduce), left);
  }
}

// Of four layers a rank: the lowest one's come first, and the next ones travel when RESHARD is over.
TEST(RecordedRoundsTest, ComeFromSharesWhileTheFirstPassRuns) {
  v1::JobSpec job = OnShares(JobOf({.pipeline = 2, .data = 2}));
  job.mutable_model()->set_hidden(1024);
  job.mutable_model()->set_ffn(4096);
  worker::JobConfig config;
  for (const Program& program : FirstPrograms(job, config)) {
    const RecordedRun run = RunRecorded(config, program.rank, program);
    ASSERT_TRUE(run.status.ok()) << run.status;
    const Instruction& reshard = program.instructions.front();
    ASSERT_EQ(reshard.op, Op::kReshard);
    const auto first = std::ranges::find(program.instructions, Op::kForward, &Instruction::op);
    const auto second =
        std::ranges::find(first + 1, program.instructions.end(), Op::kForward, &Instruction::op);
    ASSERT_NE(second, program.instructions.end());
    const auto ended = std::ranges::find(run.recording, Recorded{Call::kSet, reshard.stream, reshard.id});
    EXPECT_EQ(std::count(run.recording.begin(), ended, Recorded{Call::kStart, Stream::kCollective, 0}), 2);
    EXPECT_EQ(Starts(run.recording, Stream::kCollective, reshard, *first), 2);
    const worker::IterationMarks marks(program.instructions.size(), 9);
    const auto waits = [&](const Instruction& pass) {
      const auto end = std::ranges::find(run.recording, Recorded{Call::kSet, Stream::kCompute, pass.id});
      std::vector<worker::Mark> marks_of_works;
      for (auto recorded = ended; recorded < end; ++recorded) {
        if (recorded->call == Call::kWaitFor && recorded->stream == Stream::kCompute &&
            recorded->mark > marks.start() && recorded->mark < marks.beside())
          marks_of_works.push_back(recorded->mark);
      }
      return marks_of_works;
    };
    // A round is there when the one behind it has been begun.
    EXPECT_THAT(waits(*first),
                testing::ElementsAre(marks.EndOfWork(2), marks.EndOfWork(3), marks.EndOfWork(4)));
    EXPECT_EQ(waits(*second).size(), 3) << "all are there";
  }
}

// Of four layers a rank: all but the lowest one's.
TEST(RecordedRoundsTest, GoToSharesOnTheCollectiveStreamWhileTheLastPassRuns) {
  v1::JobSpec job = OnShares(JobOf({.pipeline = 2, .data = 2}));
  job.mutable_model()->set_hidden(1024);
  job.mutable_model()->set_ffn(4096);
  worker::JobConfig config;
  for (const Program& program : FirstPrograms(job, config)) {
    const RecordedRun run = RunRecorded(config, program.rank, program);
    ASSERT_TRUE(run.status.ok()) << run.status;
    ExpectNoHostWaitBeforeTheEnd(run);
    const Instruction* reshard = nullptr;
    const Instruction* last = nullptr;
    for (const Instruction& instruction : program.instructions) {
      if (instruction.op == Op::kReshard) reshard = &instruction;
      if (IsBackward(instruction)) last = &instruction;
    }
    ASSERT_TRUE(reshard != nullptr && last != nullptr && last->id < reshard->id);
    const Instruction& before = program.instructions[last->id - 1];
    EXPECT_EQ(Starts(run.recording, Stream::kCollective, before, *last), 3);
    EXPECT_EQ(Starts(run.recording, Stream::kCompute, before, *last), 0);
    EXPECT_EQ(Starts(run.recording, Stream::kCollective, *last, *reshard), 1);
    EXPECT_EQ(std::ranges::count(run.recording, Recorded{Call::kJoin, Stream::kCollective, 0}), 2 * 4)
        << "computing waits for no round";
  }
}

TEST_F(RecordedOrderTest, InstructionsAreMeasuredBetweenTheirMarks) {
  const Program& program = programs_[1];
  const RecordedRun run = Run(program);
  ASSERT_EQ(run.result.instructions.size(), program.instructions.size());
  for (const worker::MeasuredInstruction& measured : run.result.instructions) {
    EXPECT_GT(measured.start_ns, 0);
    EXPECT_GT(measured.duration_ns, 0);
    EXPECT_LE(measured.start_ns + measured.duration_ns, run.result.duration_ns);
  }
}

}  // namespace
}  // namespace penstock
