// Columns that nobody packed: refused by name, and never more memory than a program that makes sense takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/compact/deflate.h"
#include "common/compact/instruction_columns.h"
#include "common/compact/micro_batch_columns.h"
#include "common/compact/packed_program.h"
#include "penstock/v1/compact.pb.h"
#include "tests/support/message_mutator.h"
#include "tests/unit/verify/plan_fixture.h"

namespace penstock {
namespace {

using testing::HasSubstr;

const std::vector<uint64_t>& Tokens() {
  static const std::vector<uint64_t> tokens = {20, 20, 20};
  return tokens;
}

v1::InstructionColumns ValidColumns() {
  const v1::PlannedBatch planned = core::MakeValidPlan({});
  v1::InstructionColumns columns;
  columns.ParseFromString(
      *Inflate(*PackInstructions(planned.plan().programs(0).instructions(), Tokens()), 1 << 20));
  return columns;
}

absl::Status Read(const v1::InstructionColumns& columns, size_t most = 1000) {
  Instructions instructions;
  return UnpackInstructions(Deflate(columns.SerializeAsString()), Tokens(), most, &instructions);
}

TEST(HostileColumnsTest, ValidOnesAreRead) { EXPECT_TRUE(Read(ValidColumns()).ok()); }

TEST(HostileColumnsTest, ABombIsCutOff) {
  const std::string bomb = Deflate(std::string(size_t{64} << 20, '\0'));
  EXPECT_LT(bomb.size(), 100'000u);
  EXPECT_TRUE(absl::IsResourceExhausted(Inflate(bomb, 1 << 20).status()));
  EXPECT_EQ(Inflate(bomb, size_t{64} << 20)->size(), size_t{64} << 20);
  EXPECT_TRUE(absl::IsResourceExhausted(Inflate(bomb, (size_t{64} << 20) - 1).status()));
}

TEST(HostileColumnsTest, WhatIsCutOffOrFollowedByMoreIsRefused) {
  const std::string good = Deflate(ValidColumns().SerializeAsString());
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_TRUE(absl::IsInvalidArgument(Inflate(good.substr(0, size), 1 << 20).status())) << size;
  EXPECT_TRUE(absl::IsInvalidArgument(Inflate(good + "x", 1 << 20).status()));
}

TEST(HostileColumnsTest, MoreInstructionsThanStagesAndMicroBatchesMakeAreRefused) {
  EXPECT_TRUE(absl::IsResourceExhausted(Read(ValidColumns(), 5)));
  v1::Program program;
  program.add_stages(0);
  EXPECT_EQ(MostInstructions(program, Tokens()), 64u * 4);
}

TEST(HostileColumnsTest, AColumnOfAnotherLengthIsNamed) {
  v1::InstructionColumns columns = ValidColumns();
  columns.mutable_deps()->RemoveLast();
  EXPECT_THAT(std::string(Read(columns).message()), HasSubstr("deps has"));
  columns = ValidColumns();
  columns.add_transfer_order(0);
  EXPECT_THAT(std::string(Read(columns).message()), HasSubstr("transfer_order has"));
  columns = ValidColumns();
  columns.set_kind(0, 1000);
  EXPECT_THAT(std::string(Read(columns).message()), HasSubstr("kind[0] is 1000"));
}

TEST(HostileColumnsTest, AKindWithBillionsOfDepsTakesNoMemory) {
  v1::InstructionColumns columns = ValidColumns();
  for (v1::InstructionKind& kind : *columns.mutable_kinds()) kind.set_deps(4'000'000'000u);
  EXPECT_TRUE(absl::IsInvalidArgument(Read(columns)));
}

TEST(HostileColumnsTest, ALongShapeIsNotRepeatedWithEachInstruction) {
  v1::InstructionColumns columns = ValidColumns();
  for (int i = 0; i < 9; ++i) columns.mutable_kinds(0)->mutable_common()->mutable_transfer()->add_shape(1);
  EXPECT_THAT(std::string(Read(columns).message()), HasSubstr("kinds[0].common.transfer.shape"));
}

TEST(HostileColumnsTest, AValueThatItsFieldCannotHoldIsRefused) {
  v1::InstructionColumns columns = ValidColumns();
  columns.set_micro_batch(0, -1);
  EXPECT_THAT(std::string(Read(columns).message()), HasSubstr("instruction 0 cannot hold"));
}

TEST(HostileColumnsTest, AnythingElseIsReadOrRefused) {
  const v1::InstructionColumns valid = ValidColumns();
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    v1::InstructionColumns columns = valid;
    MessageMutator mutator(seed);
    for (int change = 0; change < 3; ++change) mutator.Apply(columns);
    const absl::Status status = Read(columns);
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status))
        << status;
  }
}

TEST(HostileColumnsTest, MicroBatchesWithoutTheirSamplesAreRefused) {
  v1::MicroBatchColumns columns;
  columns.add_micro_batches();
  columns.add_samples(4'000'000'000u);
  columns.add_source_cu_seqlens(v1::CUMULATIVE_LENGTHS_UNSPECIFIED);
  columns.add_target_cu_seqlens(v1::CUMULATIVE_LENGTHS_UNSPECIFIED);
  MicroBatches micro_batches;
  Samples samples;
  const absl::Status status =
      UnpackMicroBatches(Deflate(columns.SerializeAsString()), &micro_batches, &samples);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("samples"));
}

TEST(HostileColumnsTest, AProgramWithBothIsRefused) {
  v1::StreamProgramsResponse response;
  response.set_iteration(3);
  response.mutable_program()->add_instructions();
  response.set_instruction_columns(Deflate(ValidColumns().SerializeAsString()));
  const absl::Status status = UnpackProgram(&response);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("iteration 3: instruction_columns"));
}

}  // namespace
}  // namespace penstock
