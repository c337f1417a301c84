// What the worker gives each rank of each micro-batch of a plan file, as JSON lines: the pieces of rows and
// the runs of the flat micro-batch that lie on the rank. For shares_test.py.
//
//   worker_shares plan.json
#include <google/protobuf/util/json_util.h>

#include <cstdint>
#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"
#include "penstock/v1/planner_service.pb.h"
#include "worker/program/from_proto.h"
#include "worker/program/share.h"

namespace penstock::worker {
namespace {

v1::StreamProgramsResponse MessageFor(const v1::PlannedBatch& planned, const v1::Program& program) {
  const v1::Plan& plan = planned.plan();
  v1::StreamProgramsResponse message;
  *message.mutable_program() = program;
  *message.mutable_samples() = planned.batch().samples();
  *message.mutable_micro_batches() = plan.replicas(static_cast<int>(program.replica())).micro_batches();
  *message.mutable_groups() = plan.groups();
  *message.mutable_layers_per_stage() = plan.layers_per_stage();
  message.set_loss_tokens(plan.loss_tokens());
  return message;
}

absl::StatusOr<JobConfig> ConfigOf(const v1::Plan& plan) {
  v1::JobSpec job;
  *job.mutable_model() = plan.model();
  *job.mutable_mesh() = plan.mesh();
  PENSTOCK_ASSIGN_OR_RETURN(JobConfig config, JobFromProto(job));
  PENSTOCK_ASSIGN_OR_RETURN(config.topology, TopologyFromProto(plan.topology(), config));
  return config;
}

void Print(uint32_t rank, size_t index, const MicroBatch& shape, int context) {
  const auto pieces = absl::StrJoin(
      ChunksOf(shape, Side::kTarget, context), ",", [](std::string* out, const RowChunk& piece) {
        absl::StrAppend(out, "[", piece.row, ",", piece.first, ",", piece.length, "]");
      });
  const auto runs =
      absl::StrJoin(RunsOf(shape, Side::kTarget, context), ",", [](std::string* out, const TokenRun& run) {
        absl::StrAppend(out, "[", run.begin, ",", run.length, "]");
      });
  std::cout << absl::StrCat("{\"rank\":", rank, ",\"micro_batch\":", index, ",\"pieces\":[", pieces,
                            "],\"runs\":[", runs, "]}\n");
}

absl::Status Run(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  v1::PlannedBatch planned;
  if (!google::protobuf::util::JsonStringToMessage(text, &planned).ok())
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a plan"));
  PENSTOCK_ASSIGN_OR_RETURN(const JobConfig config, ConfigOf(planned.plan()));
  for (const v1::Program& message : planned.plan().programs()) {
    PENSTOCK_ASSIGN_OR_RETURN(const Program program, ProgramFromProto(MessageFor(planned, message), config));
    const int context = config.topology.PlaceOf(program.rank).context;
    for (size_t i = 0; i < program.micro_batches.size(); ++i)
      Print(program.rank, i, program.micro_batches[i], context);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace penstock::worker

int main(int argc, char** argv) {
  const absl::Status status = argc == 2 ? penstock::worker::Run(argv[1])
                                        : absl::InvalidArgumentError("usage: worker_shares plan.json");
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
