#include "worker/runtime/token_reader.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/sync/sync.h"

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;

// Says in the batch which micro-batch it is of, and keeps who asked for what.
class FakeDevice : public Device {
 public:
  at::Device place() const override { return at::kCPU; }
  absl::StatusOr<at::Tensor> NewBuffer(const Transfer&) override { return at::Tensor(); }
  absl::StatusOr<TokenBatch> ReadTokens(const MicroBatch& shape, const ModelConfig&, const TokenNeeds& needs,
                                        const GroupPlace&) override {
    {
      MutexLock lock(&mutex_);
      const bool own = std::this_thread::get_id() == caller_;
      reads_.push_back(absl::StrCat(own ? "caller" : "thread", " reads ", shape.sample_ids[0],
                                    needs.any() ? " with tokens" : ""));
      changed_.SignalAll();
    }
    if (hold != nullptr) hold->WaitForNotification();
    if (shape.sample_ids[0] == missing) return absl::InvalidArgumentError("no such sample");
    TokenBatch batch;
    batch.labels = at::full({1}, static_cast<int64_t>(shape.sample_ids[0]), at::kLong);
    return batch;
  }
  absl::StatusOr<TokenBatch> Load(const TokenBatch& tokens) override { return tokens; }
  absl::StatusOr<at::Tensor> ToHost(const at::Tensor& tensor) override { return tensor; }
  absl::StatusOr<std::unique_ptr<Stage>> MakeStage(const ModelConfig&, const StageRange&,
                                                   std::optional<uint64_t>, StageGroup&, int64_t) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::unique_ptr<Communicator>> MakeCommunicator(const CommunicatorOptions&) override {
    return absl::UnimplementedError("");
  }
  std::unique_ptr<InstructionTimer> MakeTimer() override { return nullptr; }
  std::unique_ptr<InstructionOrder> MakeOrder(InstructionTimer*) override { return nullptr; }

  // Blocks until there have been so many.
  std::vector<std::string> AwaitReads(size_t count) {
    MutexLock lock(&mutex_);
    while (reads_.size() < count) changed_.Wait(&mutex_);
    return reads_;
  }
  std::vector<std::string> reads() { return AwaitReads(0); }

  uint64_t missing = 99;
  // Where there: every read waits for it.
  absl::Notification* hold = nullptr;

 private:
  const std::thread::id caller_ = std::this_thread::get_id();
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> reads_ ABSL_GUARDED_BY(mutex_);
};

// Of the first of two stages: FORWARD of micro-batch 1, then of 0, which hold sample 10 * iteration + their
// number.
std::shared_ptr<Program> ProgramOf(uint64_t iteration) {
  auto program = std::make_shared<Program>();
  program->iteration = iteration;
  program->stages = {0};
  program->layers_per_stage = {2, 2};
  for (uint64_t i = 0; i < 2; ++i) {
    MicroBatch shape;
    shape.sample_ids = {10 * iteration + i};
    program->micro_batches.push_back(shape);
  }
  for (const uint32_t micro_batch : {1u, 0u}) {
    Instruction load;
    load.op = Op::kLoad;
    Instruction forward;
    forward.op = Op::kForward;
    load.micro_batch = forward.micro_batch = micro_batch;
    program->instructions.push_back(load);
    program->instructions.push_back(forward);
  }
  return program;
}

ModelConfig FourLayers() {
  ModelConfig config;
  config.layers = 4;
  return config;
}

class TokenReaderTest : public ::testing::Test {
 protected:
  int64_t Take(TokenReader& reader, const Program& program, uint32_t micro_batch) {
    const auto tokens = reader.Take(program, {0, micro_batch});
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    return tokens.ok() ? tokens->labels.item<int64_t>() : -1;
  }

  FakeDevice device_;
  const ModelConfig model_ = FourLayers();
};

TEST_F(TokenReaderTest, ReadsAheadInTheOrderOfTheForwardPasses) {
  TokenReader reader(&device_, model_);
  const auto program = ProgramOf(3);
  reader.Begin(program);
  EXPECT_THAT(device_.AwaitReads(2),
              ElementsAre("thread reads 31 with tokens", "thread reads 30 with tokens"));
  EXPECT_EQ(Take(reader, *program, 1), 31);
  EXPECT_EQ(Take(reader, *program, 0), 30);
  EXPECT_EQ(device_.reads().size(), 2u);
}

TEST_F(TokenReaderTest, ReadsAProgramOnce) {
  TokenReader reader(&device_, model_);
  const auto program = ProgramOf(3);
  reader.Begin(program);
  reader.Begin(program);
  reader.Begin(ProgramOf(4));
  EXPECT_EQ(device_.AwaitReads(4).size(), 4u);
  EXPECT_EQ(Take(reader, *program, 1), 31);
  EXPECT_EQ(device_.reads().size(), 4u);
}

TEST_F(TokenReaderTest, ReadsNowWhatWasNotBegunOrIsTakenAgain) {
  TokenReader reader(&device_, model_);
  const auto program = ProgramOf(3);
  EXPECT_EQ(Take(reader, *program, 0), 30);
  EXPECT_EQ(Take(reader, *program, 0), 30);
  EXPECT_THAT(device_.reads(), ElementsAre("caller reads 30 with tokens", "caller reads 30 with tokens"));
}

TEST_F(TokenReaderTest, TheCallerReadsWhatTheThreadHasNotComeTo) {
  absl::Notification go;
  device_.hold = &go;
  TokenReader reader(&device_, model_);
  const auto program = ProgramOf(3);
  reader.Begin(program);
  device_.AwaitReads(1);
  std::thread releaser([&] {
    device_.AwaitReads(2);
    go.Notify();
  });
  // While the thread reads the other one.
  EXPECT_EQ(Take(reader, *program, 0), 30);
  EXPECT_EQ(Take(reader, *program, 1), 31);
  releaser.join();
  EXPECT_THAT(device_.reads(), ElementsAre("thread reads 31 with tokens", "caller reads 30 with tokens"));
}

TEST_F(TokenReaderTest, AnErrorIsOfTheMicroBatchAlone) {
  device_.missing = 31;
  TokenReader reader(&device_, model_);
  const auto program = ProgramOf(3);
  reader.Begin(program);
  device_.AwaitReads(2);
  EXPECT_EQ(reader.Take(*program, {0, 1}).status().message(), "no such sample");
  EXPECT_EQ(Take(reader, *program, 0), 30);
}

TEST_F(TokenReaderTest, AStageThatEmbedsNothingNeedsNoTokens) {
  TokenReader reader(&device_, model_);
  const auto program = ProgramOf(3);
  program->layers_per_stage = {1, 1, 1, 1};
  for (Instruction& instruction : program->instructions) instruction.stage = 1;
  reader.Begin(program);
  EXPECT_THAT(device_.AwaitReads(2), ElementsAre("thread reads 31", "thread reads 30"));
}

TEST_F(TokenReaderTest, EndsWhileProgramsAreUnread) {
  absl::Notification go;
  device_.hold = &go;
  {
    TokenReader reader(&device_, model_);
    reader.Begin(ProgramOf(3));
    reader.Begin(ProgramOf(4));
    device_.AwaitReads(1);
    go.Notify();
  }
  EXPECT_LE(device_.reads().size(), 4u);
}

}  // namespace
}  // namespace penstock::worker
