// A framework that lets a planner decide which samples go together, in both ways: one plan at once, and plans
// ahead of time.
//
// Usage: ask_for_plans PLANNER PROFILE LENGTHS PLAN [CA TOKEN]
//
// PLANNER: its address. PROFILE: the cost profile of a model (JSON). LENGTHS: CSV with
// input_tokens,target_tokens. PLAN: where the first plan is written, for `penstock verify`. CA, TOKEN: of a
// planner that wants to know who calls, the file of its authority and one with a token.
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "penstock/client/planner_client.h"
#include "penstock/client/retry_iteration.h"
#include "penstock/client/security.h"

namespace {

namespace v1 = penstock::v1;

constexpr size_t kSamplesOfABatch = 64;
constexpr uint64_t kIterations = 6;
// Plans that the planner makes beyond the iteration that was last reported.
constexpr uint32_t kLookAhead = 4;

struct Arguments {
  std::string planner;
  std::string profile;
  std::string lengths;
  std::string plan;
  penstock::ClientSecurity security;
};

absl::StatusOr<v1::ProfileFile> ReadProfile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  v1::ProfileFile profile;
  const auto status = google::protobuf::util::JsonStringToMessage(text.str(), &profile);
  if (!status.ok()) return absl::InvalidArgumentError(path + ": " + std::string(status.message()));
  return profile;
}

// The ids of samples are a framework's own: here, rows of the file. Inputs lose their end where a sample is
// longer than the model takes.
std::vector<v1::Sample> ReadSamples(const std::string& path, uint32_t max_length) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // names of the columns
  std::vector<v1::Sample> samples;
  while (std::getline(file, line)) {
    v1::Sample sample;
    sample.set_sample_id(samples.size());
    sample.set_target_tokens(std::stoul(line.substr(line.find(',') + 1)));
    sample.set_input_tokens(std::min<uint32_t>(std::stoul(line), max_length - sample.target_tokens()));
    samples.push_back(sample);
  }
  return samples;
}

v1::Batch BatchOf(const std::vector<v1::Sample>& samples, uint64_t iteration) {
  v1::Batch batch;
  batch.set_iteration(iteration);
  for (size_t place = 0; place < kSamplesOfABatch; ++place) {
    *batch.add_samples() = samples[(iteration * kSamplesOfABatch + place) % samples.size()];
  }
  return batch;
}

// A pipeline of four ranks, twice.
v1::JobSpec JobOf(const v1::ProfileFile& profile) {
  v1::JobSpec job;
  job.set_job_id("framework");
  *job.mutable_model() = profile.model();
  *job.mutable_profile() = profile.profile();
  job.mutable_mesh()->set_pipeline(4);
  job.mutable_mesh()->set_data(2);
  job.mutable_planning()->set_policy(v1::POLICY_DYNAMIC);
  job.set_look_ahead_window(kLookAhead);
  return job;
}

// Micro-batches, and for each rank what it does in which order, are in the plan.
absl::Status AskForOnePlan(penstock::PlannerClient& client, const v1::JobSpec& job, const v1::Batch& batch,
                           const std::string& path) {
  v1::PlanBatchRequest request;
  *request.mutable_job() = job;
  *request.mutable_batch() = batch;
  const absl::StatusOr<v1::PlanBatchResponse> answer = client.PlanBatch(request);
  if (!answer.ok()) return answer.status();
  int micro_batches = 0;
  for (const v1::Replica& replica : answer->plan().replicas()) micro_batches += replica.micro_batches_size();
  std::cout << batch.samples_size() << " samples in " << micro_batches << " micro-batches, predicted "
            << answer->plan().predicted().makespan_ns() / 1'000'000 << " ms\n";
  v1::PlannedBatch planned;
  *planned.mutable_batch() = batch;
  *planned.mutable_plan() = answer->plan();
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(planned, &text);
  if (!status.ok()) return absl::InternalError(std::string(status.message()));
  std::ofstream(path) << text;
  return absl::OkStatus();
}

// As far as the window goes; `next` is then the iteration to go on from.
absl::Status SubmitFrom(penstock::PlannerClient& client, const std::string& job_id,
                        const std::vector<v1::Sample>& samples, uint64_t* next) {
  for (; *next < kIterations; ++*next) {
    v1::SubmitBatchesRequest request;
    request.set_job_id(job_id);
    *request.add_batches() = BatchOf(samples, *next);
    const absl::StatusOr<v1::SubmitBatchesResponse> answer = client.SubmitBatches(request);
    if (penstock::RetryIteration(answer.status()).has_value()) return absl::OkStatus();
    if (!answer.ok()) return answer.status();
  }
  return absl::OkStatus();
}

// A framework runs the program here. What it reports opens the window further.
absl::Status RunIteration(penstock::PlannerClient& client, const std::string& job_id, uint32_t rank,
                          penstock::ProgramStream& programs) {
  const auto program = programs.Next();
  if (!program.ok()) return program.status();
  if (!program->has_value()) return absl::InternalError("the job ended before its last iteration");
  const v1::StreamProgramsResponse& got = **program;
  std::cout << "iteration " << got.iteration() << " rank " << rank << ": "
            << got.program().instructions_size() << " instructions, " << got.micro_batches_size()
            << " micro-batches\n";
  v1::ReportIterationRequest report;
  report.set_job_id(job_id);
  report.set_rank(rank);
  report.set_iteration(got.iteration());
  return client.ReportIteration(report).status();
}

absl::Status AskForPlansAhead(penstock::PlannerClient& client, const v1::JobSpec& job,
                              const std::vector<v1::Sample>& samples) {
  v1::RegisterJobRequest registration;
  *registration.mutable_job() = job;
  if (const auto answer = client.RegisterJob(registration); !answer.ok()) return answer.status();
  std::vector<std::unique_ptr<penstock::ProgramStream>> ranks;
  for (uint32_t rank = 0; rank < job.mesh().pipeline() * job.mesh().data(); ++rank) {
    v1::StreamProgramsRequest request;
    request.set_job_id(job.job_id());
    request.set_rank(rank);
    ranks.push_back(client.StreamPrograms(request));
  }
  uint64_t next = 0;
  for (uint64_t iteration = 0; iteration < kIterations; ++iteration) {
    if (absl::Status status = SubmitFrom(client, job.job_id(), samples, &next); !status.ok()) return status;
    for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
      if (absl::Status status = RunIteration(client, job.job_id(), rank, *ranks[rank]); !status.ok())
        return status;
    }
  }
  v1::DeleteJobRequest deletion;
  deletion.set_job_id(job.job_id());
  return client.DeleteJob(deletion).status();
}

absl::Status Run(const Arguments& arguments) {
  const absl::StatusOr<penstock::ChannelSecurity> security = penstock::SecurityOfChannels(arguments.security);
  if (!security.ok()) return security.status();
  const absl::StatusOr<v1::ProfileFile> profile = ReadProfile(arguments.profile);
  if (!profile.ok()) return profile.status();
  const std::vector<v1::Sample> samples =
      ReadSamples(arguments.lengths, profile->model().max_sequence_length());
  if (samples.empty()) return absl::InvalidArgumentError(arguments.lengths + " holds no lengths");
  penstock::PlannerClient client(arguments.planner, *security);
  const v1::JobSpec job = JobOf(*profile);
  if (absl::Status status = AskForOnePlan(client, job, BatchOf(samples, 0), arguments.plan); !status.ok()) {
    return status;
  }
  return AskForPlansAhead(client, job, samples);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() != 4 && words.size() != 6) {
    std::cerr << "usage: ask_for_plans PLANNER PROFILE LENGTHS PLAN [CA TOKEN]\n";
    return 2;
  }
  Arguments arguments{words[0], words[1], words[2], words[3], {}};
  if (words.size() == 6) {
    arguments.security.authority = words[4];
    arguments.security.token = words[5];
  }
  if (const absl::Status status = Run(arguments); !status.ok()) {
    std::cerr << status << "\n";
    return 1;
  }
  return 0;
}
