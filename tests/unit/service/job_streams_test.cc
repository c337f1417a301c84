// What streams cost, and what one may ask for.
#include <memory>
#include <vector>

#include "common/compact/instruction_columns.h"
#include "common/compact/packed_program.h"
#include "tests/unit/service/engine_fixture.h"

namespace penstock {
namespace {

class JobStreamsTest : public EngineFixture {
 protected:
  static constexpr size_t kStream = ProgramMessages::kStreamBytes;

  std::shared_ptr<Job> Fed() {
    auto job = Register(MakeJob("job"));
    EXPECT_TRUE(job->SubmitBatches(MakeSubmission("job", 0, 4)).ok());
    return job;
  }
};

TEST_F(JobStreamsTest, StreamsOfOneRankShareTheirMessage) {
  const auto job = Fed();
  std::vector<std::unique_ptr<Reader>> readers;
  std::vector<ProgramBytes> held;
  ASSERT_TRUE(Reader(job, StreamRequest(0)).Next().has_value()) << "planned";
  for (int i = 0; i < 100; ++i) {
    readers.push_back(std::make_unique<Reader>(job, StreamRequest(0)));
    held.push_back(std::get<ProgramBytes>(readers.back()->Poll()));
    EXPECT_EQ(held.back(), held.front());
  }
  EXPECT_EQ(engine_->stream_bytes(), 100 * kStream + held.front()->size());
  held.clear();
  readers.clear();
  EXPECT_EQ(engine_->stream_bytes(), 0);
}

TEST_F(JobStreamsTest, AReaderOfCompactProgramsIsSentColumnsAndAnotherAllOfIt) {
  const auto job = Fed();
  auto request = StreamRequest(1);
  const auto full = Reader(job, request).Next();
  request.set_compact_version(kCompactVersion);
  auto compact = Reader(job, request).Next();
  ASSERT_TRUE(full.has_value() && compact.has_value());
  EXPECT_EQ(full->program().instructions_size(), 3);
  EXPECT_EQ(full->instruction_columns(), "");
  EXPECT_EQ(compact->program().instructions_size(), 0);
  ASSERT_TRUE(UnpackProgram(&*compact).ok());
  EXPECT_EQ(compact->SerializeAsString(), full->SerializeAsString());
}

TEST_F(JobStreamsTest, AProgramThatIsTooLargeInFullIsRefusedByNameAndSentToWhoReadsCompactOnes) {
  EngineOptions options;
  options.message_bytes = 28'000;
  Start(options);
  v1::JobSpec spec = MakeJob("job");
  spec.mutable_mesh()->set_data(1);
  auto job = Register(spec);
  v1::SubmitBatchesRequest batches = MakeSubmission("job", 0, 1);
  for (uint64_t i = 0; i < 2000; ++i) {
    v1::Sample* const sample = batches.mutable_batches(0)->add_samples();
    sample->set_sample_id((uint64_t{1} << 63) + i);
    sample->set_target_tokens(7);
  }
  ASSERT_TRUE(job->SubmitBatches(batches).ok());
  auto request = StreamRequest(0);
  EXPECT_THAT(Reader(job, request).End(),
              Fails(absl::StatusCode::kResourceExhausted, "a reader of compact programs (compact_version"));
  request.set_compact_version(kCompactVersion);
  EXPECT_TRUE(Reader(job, request).Next().has_value());
  EXPECT_THAT(job->GetIteration(0), Fails(absl::StatusCode::kResourceExhausted, "the plan of iteration 0"));
}

TEST_F(JobStreamsTest, AStreamThatHasNoRoomSaysWhyAndAWorkersIsServed) {
  Start({.stream_memory_bytes = 2 * kStream});
  const auto job = Fed();
  FormEpoch(*job, 101);
  Reader first(job, StreamRequest(0)), second(job, StreamRequest(1)), third(job, StreamRequest(0));
  EXPECT_THAT(third.End(), Fails(absl::StatusCode::kResourceExhausted, "Read the streams, or close"));
  Reader worker(job, StreamRequest(0, 0, 101, 1));
  EXPECT_TRUE(worker.Next().has_value());
  // One of a rank, whoever has stolen its incarnation.
  Reader again(job, StreamRequest(0, 0, 101, 1));
  EXPECT_THAT(again.End(), Fails(absl::StatusCode::kResourceExhausted, "eighth"));
}

TEST_F(JobStreamsTest, AWorkerThatCameBackHasARoomOfItsOwnAgain) {
  Start({.stream_memory_bytes = kStream});
  const auto job = Fed();
  FormEpoch(*job, 101);
  Reader other(job, StreamRequest(1));
  for (int i = 0; i < 3; ++i) {
    Reader worker(job, StreamRequest(0, 0, 101, 1));
    EXPECT_TRUE(worker.Next().has_value());
  }
}

TEST_F(JobStreamsTest, AnIterationThatCannotComeIsRefusedAndTheNextOnesAreWaitedFor) {
  const auto job = Fed();
  EXPECT_THAT(
      Reader(job, StreamRequest(0, UINT64_MAX)).End(),
      Fails(absl::StatusCode::kOutOfRange, "from_iteration: iteration 18446744073709551615 is beyond"));
  // The window is 16.
  EXPECT_TRUE(Reader(job, StreamRequest(0, 16)).IsPending());
  EXPECT_THAT(Reader(job, StreamRequest(0, 17)).End(), Fails(absl::StatusCode::kOutOfRange, "at most 16"));
}

}  // namespace
}  // namespace penstock
