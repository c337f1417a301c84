// Programs of ranks of stage groups: joint passes, spans, parts of micro-batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/worker/program/valid_messages.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ProgramFromProto, KnowsJointPassesAndSpans) {
  const absl::StatusOr<Program> program = ProgramFromProto(ContextMessage(), ContextJob());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(program->instructions[3].joint);
  EXPECT_EQ(program->instructions[3].group, 0u);
  EXPECT_EQ(program->instructions[3].own_duration_ns, 1000);
  EXPECT_EQ(program->instructions[3].exchange_ns, 0) << "what travels beside computing is not waited for";
  EXPECT_FALSE(program->instructions[6].joint);
  ASSERT_EQ(program->micro_batches[0].spans.size(), 2u);
  EXPECT_EQ(program->micro_batches[0].spans[0].first, 1u);
  EXPECT_EQ(program->micro_batches[0].spans[1].ranks, 2u);
}

TEST(ProgramFromProto, AJointPassWaitsForWhatItExchangesWithAllItsPeers) {
  v1::StreamProgramsResponse message = ContextMessage();
  v1::PassExchange& exchange = *message.mutable_program()->mutable_instructions(3)->mutable_exchange();
  exchange.set_tensor_ns(100);
  exchange.set_context_exposed_ns(20);
  exchange.set_expert_ns(7000);
  exchange.set_expert_exposed_ns(3);
  const absl::StatusOr<Program> program = ProgramFromProto(message, ContextJob());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->instructions[3].exchange_ns, 123);
}

TEST(ProgramFromProto, KnowsThePartsOfMicroBatches) {
  v1::StreamProgramsResponse message = ContextMessage();
  for (const uint32_t end : {0, 1, 2}) message.mutable_micro_batches(0)->add_part_rows(end);
  const absl::StatusOr<Program> program = ProgramFromProto(message, ExpertJob());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(program->micro_batches[0].part_rows, ElementsAre(0, 1, 2));
  EXPECT_FALSE(program->micro_batches[0].whole_backward);
  EXPECT_THAT(program->micro_batches[1].part_rows, ElementsAre());

  message.mutable_micro_batches(0)->set_whole_backward(true);
  const absl::StatusOr<Program> joined = ProgramFromProto(message, ExpertJob());
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_TRUE(joined->micro_batches[0].whole_backward);
}

TEST(ProgramFromProto, NamesWhatIsWrongWithPartsOfMicroBatches) {
  const auto error = [](const std::vector<uint32_t>& part_rows, const JobConfig& job, bool beside = false,
                        bool whole_backward = false) {
    v1::StreamProgramsResponse message = ContextMessage();
    message.mutable_micro_batches(0)->set_whole_backward(whole_backward);
    message.mutable_micro_batches(0)->mutable_part_rows()->Add(part_rows.begin(), part_rows.end());
    v1::Instruction& pass = *message.mutable_program()->mutable_instructions(3);
    if (beside) {
      pass.set_op(v1::OP_BACKWARD);
      pass.mutable_exchange()->set_others_beside_arrival(true);
    }
    return std::string(ProgramFromProto(message, job).status().message());
  };
  EXPECT_THAT(
      error({0, 1, 2}, ContextJob()),
      AllOf(HasSubstr("micro-batch 0"), HasSubstr("part_rows is 0, 1, 2: there are no parts where ranks "
                                                  "do not divide experts")));
  for (const std::vector<uint32_t>& wrong :
       {std::vector<uint32_t>{0}, {2}, {1, 2}, {0, 1}, {0, 0, 2}, {0, 2, 1}, {0, 1, 3}}) {
    EXPECT_THAT(error(wrong, ExpertJob()), HasSubstr("expected values that rise from 0 to 2"));
  }
  EXPECT_EQ(error({}, ExpertJob(), /*beside=*/true), "");
  EXPECT_THAT(error({0, 2}, ExpertJob(), /*beside=*/true),
              AllOf(HasSubstr("instruction 3"), HasSubstr("beside exchanges of a micro-batch in parts")));
  EXPECT_EQ(error({0, 2}, ExpertJob(), /*beside=*/true, /*whole_backward=*/true), "");
  EXPECT_THAT(error({}, ExpertJob(), /*beside=*/false, /*whole_backward=*/true),
              AllOf(HasSubstr("micro-batch 0"), HasSubstr("whole_backward is set, but part_rows is empty")));
}

TEST(ProgramFromProto, NamesWhatIsWrongWithPartsInsideOfRows) {
  const auto read = [](const std::vector<uint32_t>& part_chunks, bool whole_backward = true,
                       double capacity = 0) {
    v1::StreamProgramsResponse message = ContextMessage();
    message.set_real_tokens(20);
    v1::MicroBatch& micro_batch = *message.mutable_micro_batches(0);
    for (const uint32_t end : {0, 1, 2}) micro_batch.add_part_rows(end);
    micro_batch.mutable_part_chunks()->Add(part_chunks.begin(), part_chunks.end());
    micro_batch.set_whole_backward(whole_backward);
    JobConfig job = ExpertJob();
    job.model.expert_capacity_factor = capacity;
    return ProgramFromProto(message, job);
  };
  const auto error = [&](const auto&... of) { return std::string(read(of...).status().message()); };
  // Row 1 is divided over two context ranks.
  const absl::StatusOr<Program> program = read({0, 2, 0});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(program->micro_batches[0].part_chunks, ElementsAre(0, 2, 0));
  using Chunks = std::vector<uint32_t>;
  EXPECT_THAT(error(Chunks{0, 4, 0}), AllOf(HasSubstr("micro-batch 0"), HasSubstr("part_chunks is 0, 4, 0"),
                                            HasSubstr("row 1 has the chunks 0 to 3")));
  EXPECT_THAT(error(Chunks{0, 1}), HasSubstr("expected one value for each of part_rows"));
  EXPECT_THAT(error(Chunks{1, 2, 0}), HasSubstr("row 0 lies on one context rank"));
  EXPECT_THAT(error(Chunks{0, 2, 0}, false), HasSubstr("whole_backward is set alone"));
  EXPECT_THAT(error(Chunks{0, 2, 0}, true, 1.25), HasSubstr("experts have a capacity"));
}

TEST(ProgramFromProto, NamesWhatIsWrongWithJointPassesAndSpans) {
  const auto error = [](void (*change)(v1::StreamProgramsResponse&)) {
    v1::StreamProgramsResponse message = ContextMessage();
    change(message);
    return std::string(ProgramFromProto(message, ContextJob()).status().message());
  };
  EXPECT_THAT(
      error([](auto& message) { message.mutable_program()->mutable_instructions(3)->clear_collective(); }),
      AllOf(HasSubstr("instruction 3"), HasSubstr("collective is not set")));
  EXPECT_THAT(error([](auto& message) {
                message.mutable_program()->mutable_instructions(3)->mutable_collective()->set_group(1);
              }),
              HasSubstr("collective.group 1 is not the stage group of rank 3"));
  EXPECT_THAT(error([](auto& message) {
                message.mutable_program()->mutable_instructions(3)->set_own_duration_ns(1235);
              }),
              HasSubstr("own_duration_ns is 1235, expected 0 to 1234"));
  EXPECT_THAT(error([](auto& message) {
                message.mutable_program()->mutable_instructions(3)->mutable_exchange()->set_tensor_ns(-1);
              }),
              HasSubstr("exchange has a time of -1"));
  EXPECT_THAT(error([](auto& message) { message.mutable_micro_batches(0)->clear_span_first(); }),
              AllOf(HasSubstr("micro-batch 0"), HasSubstr("span_first has 0 values, span_ranks 2")));
  EXPECT_THAT(error([](auto& message) { message.mutable_micro_batches(0)->set_span_ranks(1, 4); }),
              HasSubstr("span of row 1: 4 context ranks from 0 on, expected an aligned run"));
  EXPECT_THAT(error([](auto& message) { message.mutable_micro_batches(0)->set_span_first(1, 1); }),
              HasSubstr("span of row 1: 2 context ranks from 1 on"));
  EXPECT_THAT(error([](auto& message) { message.mutable_micro_batches(0)->set_span_first(0, 2); }),
              HasSubstr("span of row 0: 1 context ranks from 2 on"));
  EXPECT_THAT(
      error([](auto& message) {
        message.mutable_samples(1)->set_target_tokens(3);
        message.mutable_micro_batches(1)->set_target_cu_seqlens(1, 3);
        message.mutable_micro_batches(1)->set_span_ranks(0, 2);
      }),
      AllOf(HasSubstr("micro-batch 1"), HasSubstr("span of row 0"), HasSubstr("the row has 3 tokens")));
}

TEST(ProgramFromProto, WhatIsForStageGroupsIsRefusedWhereAStageIsOnOneRank) {
  v1::StreamProgramsResponse message = ValidMessage();
  message.mutable_program()->mutable_instructions(3)->set_own_duration_ns(1);
  EXPECT_THAT(std::string(ProgramFromProto(message, Job()).status().message()),
              HasSubstr("are for stage groups of several ranks"));
  message = ValidMessage();
  message.mutable_micro_batches(0)->add_span_first(0);
  message.mutable_micro_batches(0)->add_span_ranks(1);
  EXPECT_THAT(std::string(ProgramFromProto(message, Job()).status().message()),
              HasSubstr("span_first has 1 values, but the job has one context rank"));
}

}  // namespace
}  // namespace penstock::worker
