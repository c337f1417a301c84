// Requests for tests of the planner service.
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "absl/status/status.h"
#include "penstock/v1/planner_service.pb.h"
#include "tests/support/status_matchers.h"

namespace penstock {

// A job of pipeline x data ranks for the fake planner; workers are lost after a second.
inline v1::JobSpec MakeJob(const std::string& id, uint32_t pipeline = 2, uint32_t data = 1) {
  v1::JobSpec job;
  job.set_job_id(id);
  job.mutable_mesh()->set_pipeline(pipeline);
  job.mutable_mesh()->set_data(data);
  job.set_heartbeat_timeout_ms(1000);
  return job;
}

// Four samples of `tokens` each.
inline v1::Batch MakeBatch(uint64_t iteration, uint32_t tokens = 10) {
  v1::Batch batch;
  batch.set_iteration(iteration);
  for (uint32_t i = 0; i < 4; ++i) {
    v1::Sample* sample = batch.add_samples();
    sample->set_sample_id(iteration * 4 + i);
    sample->set_target_tokens(tokens);
  }
  return batch;
}

// Batches of the iterations from .. to - 1.
inline v1::SubmitBatchesRequest MakeSubmission(const std::string& job_id, uint64_t from, uint64_t to,
                                               uint32_t tokens = 10) {
  v1::SubmitBatchesRequest request;
  request.set_job_id(job_id);
  for (uint64_t iteration = from; iteration < to; ++iteration) {
    *request.add_batches() = MakeBatch(iteration, tokens);
  }
  return request;
}

inline v1::RegisterWorkerRequest MakeRegistration(uint64_t incarnation, int32_t rank = -1,
                                                  uint64_t first_iteration = 0) {
  v1::RegisterWorkerRequest request;
  request.set_job_id("job");
  request.set_incarnation(incarnation);
  request.set_host("10.0.0.1");
  request.set_rank(rank);
  request.set_first_iteration(first_iteration);
  return request;
}

inline v1::HeartbeatRequest MakeHeartbeat(uint32_t rank, uint64_t incarnation, uint64_t epoch) {
  v1::HeartbeatRequest request;
  request.set_job_id("job");
  request.set_rank(rank);
  request.set_incarnation(incarnation);
  request.set_epoch(epoch);
  if (rank == 0) request.set_rendezvous_address("10.0.0.1:29500");
  return request;
}

inline v1::ReportIterationRequest MakeReport(uint32_t rank, uint64_t iteration, uint64_t incarnation = 0,
                                             uint64_t epoch = 0) {
  v1::ReportIterationRequest report;
  report.set_job_id("job");
  report.set_rank(rank);
  report.set_incarnation(incarnation);
  report.set_epoch(epoch);
  report.set_iteration(iteration);
  report.set_duration_ns(4'000'000);
  report.set_loss(1.5);
  for (uint32_t id = 0; id < 3; ++id) {
    v1::MeasuredInstruction* measured = report.add_instructions();
    measured->set_id(id);
    measured->set_duration_ns(1'000'000);
  }
  return report;
}

}  // namespace penstock
