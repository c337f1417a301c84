// Messages in which one field is wrong: what is refused, and that the field is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/unit/worker/program/valid_messages.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

struct Damage {
  const char* name;
  std::function<void(v1::StreamProgramsResponse&)> apply;
  const char* message;
};

v1::Instruction& At(v1::StreamProgramsResponse& message, int id) {
  return *message.mutable_program()->mutable_instructions(id);
}

class ProgramFromProtoDamage : public ::testing::TestWithParam<Damage> {};

TEST_P(ProgramFromProtoDamage, IsRefused) {
  v1::StreamProgramsResponse message = ValidMessage();
  GetParam().apply(message);
  const absl::Status status = ProgramFromProto(message, Job()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    EveryField, ProgramFromProtoDamage,
    ::testing::Values(
        Damage{"IdOutOfOrder", [](auto& m) { At(m, 3).set_id(9); }, "id is 9"},
        Damage{"OpNotSet", [](auto& m) { At(m, 0).clear_op(); }, "op is not set"},
        Damage{"StreamNotSet", [](auto& m) { At(m, 0).clear_stream(); }, "stream is not set"},
        Damage{"ForeignStage", [](auto& m) { At(m, 3).set_stage(0); }, "stage 0 is not on this rank"},
        Damage{"NoSuchMicroBatch", [](auto& m) { At(m, 3).set_micro_batch(2); }, "micro_batch is 2"},
        Damage{"NegativeDuration", [](auto& m) { At(m, 3).set_expected_duration_ns(-1); },
               "expected_duration_ns is -1"},
        Damage{"TooFewDurationsOfTheProfile", [](auto& m) { m.add_profile_duration_ns(7); },
               "profile_duration_ns has 1 values for 7 instructions"},
        Damage{"NegativeDurationOfTheProfile",
               [](auto& m) {
                 for (int i = 0; i < 7; ++i) m.add_profile_duration_ns(i == 5 ? -1 : 1);
               },
               "profile_duration_ns has a time of -1"},
        Damage{"LaterDep", [](auto& m) { At(m, 3).set_deps(0, 4); }, "deps names 4"},
        Damage{"NoSuchPeer", [](auto& m) { At(m, 1).mutable_transfer()->set_peer(4); }, "transfer.peer is 4"},
        Damage{"PeerIsItself", [](auto& m) { At(m, 1).mutable_transfer()->set_peer(1); }, "the rank itself"},
        Damage{"OtherType", [](auto& m) { At(m, 1).mutable_transfer()->set_dtype(v1::DATA_TYPE_FLOAT32); },
               "transfer.dtype"},
        Damage{"WaitForLater", [](auto& m) { At(m, 2).set_transfer_id(2); }, "transfer_id is 2"},
        Damage{"WaitForNoTransfer", [](auto& m) { At(m, 2).set_transfer_id(0); },
               "neither a SEND nor a RECV"},
        Damage{"NoCollective", [](auto& m) { At(m, 5).clear_collective(); }, "collective is not set"},
        Damage{"NoSuchGroup", [](auto& m) { At(m, 5).mutable_collective()->set_group(2); },
               "collective.group is 2"},
        Damage{"GroupWithoutThisRank", [](auto& m) { m.mutable_groups(0)->set_ranks(0, 2); },
               "does not hold rank 1"},
        Damage{"NoSuchSample", [](auto& m) { m.mutable_micro_batches(0)->set_samples(0, 3); }, "sample 3"},
        Damage{"EmptyMicroBatch", [](auto& m) { m.mutable_micro_batches(0)->clear_samples(); },
               "samples is empty"},
        Damage{"WrongRows", [](auto& m) { m.mutable_micro_batches(0)->set_rows(3); }, "rows is 3"},
        Damage{"ShortRectangle", [](auto& m) { m.mutable_micro_batches(0)->set_target_length(5); },
               "target_length is 5"},
        Damage{"WrongCuSeqlens", [](auto& m) { m.mutable_micro_batches(1)->set_target_cu_seqlens(1, 5); },
               "target_cu_seqlens[1]"},
        Damage{"MissingRecompute",
               [](auto& m) { m.mutable_micro_batches(1)->mutable_recompute()->RemoveLast(); },
               "recompute has 1 entries"},
        Damage{"TooManyRecomputed",
               [](auto& m) { m.mutable_micro_batches(1)->mutable_recompute(0)->set_full_layers(3); },
               "recompute of stage 0 names 3 full_layers"},
        Damage{"WrongLayers", [](auto& m) { m.set_layers_per_stage(0, 3); }, "layers_per_stage sums to 5"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock::worker
