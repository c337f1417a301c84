#include "planner/service/rpc/request_validation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/service/requests.h"

namespace penstock {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::Status ValidateJobWith(const std::function<void(v1::JobSpec*)>& change) {
  v1::RegisterJobRequest request;
  *request.mutable_job() = MakeJob("job");
  change(request.mutable_job());
  return Validate(request);
}

TEST(RequestValidationTest, AcceptsWellFormedRequests) {
  EXPECT_TRUE(ValidateJobWith([](v1::JobSpec*) {}).ok());
  EXPECT_TRUE(Validate(MakeSubmission("a-b_c.9", 5, 8)).ok());
  EXPECT_TRUE(Validate(MakeRegistration(1)).ok());
  EXPECT_TRUE(Validate(MakeHeartbeat(0, 1, 1)).ok());
  EXPECT_TRUE(Validate(MakeReport(0, 1)).ok());
}

TEST(RequestValidationTest, NamesTheFieldOfAWrongJob) {
  EXPECT_THAT(Validate(v1::RegisterJobRequest()), Fails(kInvalid, "job is missing"));
  EXPECT_THAT(ValidateJobWith([](auto* job) { job->clear_job_id(); }),
              Fails(kInvalid, "job.job_id is empty"));
  EXPECT_THAT(ValidateJobWith([](auto* job) { job->set_job_id("a b"); }),
              Fails(kInvalid, "job.job_id: only letters"));
  for (const char* id : {"../a", "a/b", "a\n", "\x1b[2J", "/"}) {
    EXPECT_THAT(ValidateJobWith([id](auto* job) { job->set_job_id(id); }),
                Fails(kInvalid, "job.job_id: only letters"));
  }
  for (const char* id : {".", ".."}) {
    EXPECT_THAT(ValidateJobWith([id](auto* job) { job->set_job_id(id); }),
                Fails(kInvalid, "names a folder outside"));
  }
  EXPECT_TRUE(ValidateJobWith([](auto* job) { job->set_job_id("..."); }).ok());
  EXPECT_THAT(ValidateJobWith([](auto* job) { job->set_job_id(std::string(129, 'x')); }),
              Fails(kInvalid, "129 characters"));
  EXPECT_THAT(ValidateJobWith([](auto* job) { job->set_look_ahead_window(4097); }),
              Fails(kInvalid, "job.look_ahead_window is 4097"));
  EXPECT_THAT(ValidateJobWith([](auto* job) { job->set_heartbeat_timeout_ms(50); }),
              Fails(kInvalid, "job.heartbeat_timeout_ms is 50"));
  EXPECT_THAT(ValidateJobWith([](auto* job) {
                job->set_first_iteration(11);
                job->mutable_training()->set_iterations(10);
              }),
              Fails(kInvalid, "job.first_iteration is 11"));
}

TEST(RequestValidationTest, BoundsOfAJobAreCheckedBeforeAnythingIsComputed) {
  EXPECT_THAT(ValidateJobWith([](auto* job) {
                job->mutable_mesh()->set_pipeline(1024);
                job->mutable_mesh()->set_data(65);
              }),
              Fails(kInvalid, "job.mesh: 1024 x 65"));
  EXPECT_THAT(ValidateJobWith([](auto* job) { job->mutable_model()->set_layers(100'000); }),
              Fails(kInvalid, "job.model.layers: 100000"));
  EXPECT_THAT(ValidateJobWith([](auto* job) { job->set_first_iteration(UINT64_MAX); }),
              Fails(kInvalid, "job.first_iteration"));
}

TEST(RequestValidationTest, NamesTheSampleOfAWrongBatch) {
  EXPECT_THAT(Validate(MakeSubmission("job", 0, 0)), Fails(kInvalid, "batches is empty"));
  auto request = MakeSubmission("job", 0, 3);
  request.mutable_batches(1)->mutable_samples(2)->set_target_tokens(0);
  EXPECT_THAT(Validate(request), Fails(kInvalid, "batches[1].samples[2] has no tokens"));
  request.mutable_batches(1)->mutable_samples(2)->set_target_tokens(static_cast<uint32_t>(-1));
  EXPECT_THAT(Validate(request),
              Fails(kInvalid, "batches[1].samples[2].target_tokens is 4294967295: not a length"));
  request.mutable_batches(1)->mutable_samples(2)->set_target_tokens(1);
  request.mutable_batches(1)->mutable_samples(2)->set_input_tokens(static_cast<uint32_t>(-5));
  EXPECT_THAT(Validate(request), Fails(kInvalid, "batches[1].samples[2].input_tokens"));
  request.mutable_batches(1)->clear_samples();
  EXPECT_THAT(Validate(request), Fails(kInvalid, "batches[1].samples is empty"));
}

TEST(RequestValidationTest, IterationsMustBeConsecutive) {
  auto request = MakeSubmission("job", 4, 7);
  request.mutable_batches(2)->set_iteration(9);
  EXPECT_THAT(Validate(request), Fails(kInvalid, "batches[2].iteration is 9, expected 6"));
}

TEST(RequestValidationTest, PlanBatchNeedsAJobAndABatch) {
  v1::PlanBatchRequest request;
  EXPECT_THAT(Validate(request), Fails(kInvalid, "neither job_id nor job"));
  request.set_job_id("job");
  EXPECT_THAT(Validate(request), Fails(kInvalid, "batch.samples is empty"));
  *request.mutable_batch() = MakeBatch(0);
  EXPECT_TRUE(Validate(request).ok());
  request.mutable_job();
  EXPECT_THAT(Validate(request), Fails(kInvalid, "job.job_id is empty"));
}

TEST(RequestValidationTest, EveryRequestNamesAJob) {
  EXPECT_THAT(Validate(v1::StreamProgramsRequest()), Fails(kInvalid, "job_id is empty"));
  EXPECT_THAT(Validate(v1::ReportIterationRequest()), Fails(kInvalid, "job_id is empty"));
  EXPECT_THAT(Validate(v1::RegisterWorkerRequest()), Fails(kInvalid, "job_id is empty"));
  EXPECT_THAT(Validate(v1::HeartbeatRequest()), Fails(kInvalid, "job_id is empty"));
  EXPECT_THAT(Validate(v1::GetJobRequest()), Fails(kInvalid, "job_id is empty"));
  EXPECT_THAT(Validate(v1::GetIterationRequest()), Fails(kInvalid, "job_id is empty"));
  EXPECT_THAT(Validate(v1::DrainJobRequest()), Fails(kInvalid, "job_id is empty"));
  EXPECT_THAT(Validate(v1::ChangeStrategiesRequest()), Fails(kInvalid, "job_id is empty"));
}

TEST(RequestValidationTest, ChangedStrategiesAreNotMoreThanAJobMayHave) {
  v1::ChangeStrategiesRequest request;
  request.set_job_id("job");
  EXPECT_TRUE(Validate(request).ok());
  request.set_typical_batch_size(3);
  EXPECT_THAT(Validate(request), Fails(kInvalid, "typical_batch_size is 3, but typical_samples is empty"));
  request.add_typical_samples()->set_target_tokens(9);
  EXPECT_TRUE(Validate(request).ok());
  for (int i = 0; i < 65; ++i) request.add_strategies();
  EXPECT_THAT(Validate(request), Fails(kInvalid, "strategies: 65; use at most 64"));
}

TEST(RequestValidationTest, WeightsOfSamplesAreNumbersOfAtLeastZero) {
  for (const double weight : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    auto request = MakeSubmission("job", 0, 1);
    request.mutable_batches(0)->mutable_samples(2)->set_loss_weight(weight);
    EXPECT_THAT(Validate(request), Fails(kInvalid, "batches[0].samples[2].loss_weight is"));
  }
}

TEST(RequestValidationTest, LossesOfTasksAscendAndAreNumbers) {
  const auto with = [](std::vector<v1::TaskLoss> tasks) {
    auto report = MakeReport(0, 0);
    for (v1::TaskLoss& task : tasks) *report.add_tasks() = std::move(task);
    return report;
  };
  const auto task = [](uint32_t number, double loss, double weight) {
    v1::TaskLoss result;
    result.set_task(number);
    result.set_loss(loss);
    result.set_weight(weight);
    return result;
  };
  EXPECT_TRUE(Validate(with({task(0, 1, 2), task(3, 0, 0)})).ok());
  EXPECT_THAT(Validate(with({task(3, 1, 2), task(3, 1, 2)})), Fails(kInvalid, "tasks[1].task is 3"));
  EXPECT_THAT(Validate(with({task(0, std::nan(""), 2)})), Fails(kInvalid, "tasks[0].loss is nan"));
  EXPECT_THAT(Validate(with({task(0, -1, 2)})), Fails(kInvalid, "tasks[0].loss is -1"));
  EXPECT_THAT(Validate(with({task(0, 1, -2)})), Fails(kInvalid, "tasks[0].weight is -2"));
}

TEST(RequestValidationTest, NormsOfPartsAscendAndAreNotNegative) {
  const auto with = [](const std::vector<std::pair<v1::ModelPart, double>>& parts) {
    v1::ReportIterationRequest report = MakeReport(0, 7);
    for (const auto& [part, norm] : parts) {
      v1::PartNorm* const added = report.add_part_norms();
      added->set_part(part);
      added->set_norm(norm);
    }
    return report;
  };
  EXPECT_TRUE(Validate(with({{v1::MODEL_PART_EMBEDDING, 0}, {v1::MODEL_PART_HEAD, 3}})).ok());
  EXPECT_THAT(Validate(with({{v1::MODEL_PART_UNSPECIFIED, 1}})), Fails(kInvalid, "part_norms[0].part is 0"));
  EXPECT_THAT(Validate(with({{static_cast<v1::ModelPart>(99), 1}})),
              Fails(kInvalid, "part_norms[0].part is 99"));
  EXPECT_THAT(Validate(with({{v1::MODEL_PART_HEAD, 1}, {v1::MODEL_PART_HEAD, 1}})),
              Fails(kInvalid, "part_norms[1].part is MODEL_PART_HEAD"));
  EXPECT_THAT(Validate(with({{v1::MODEL_PART_HEAD, -1}})), Fails(kInvalid, "part_norms[0].norm is -1"));
}

TEST(RequestValidationTest, RowsOfTheFullestExpertAreAmongThoseOfItsRank) {
  const auto with = [](const std::vector<uint64_t>& rows, const std::vector<uint64_t>& fullest) {
    v1::ReportIterationRequest report = MakeReport(0, 7);
    report.mutable_expert_rows()->Assign(rows.begin(), rows.end());
    report.mutable_fullest_expert_rows()->Assign(fullest.begin(), fullest.end());
    return report;
  };
  EXPECT_TRUE(Validate(with({5, 0}, {5, 0})).ok());
  EXPECT_TRUE(Validate(with({5, 0}, {})).ok()) << "of a worker that does not tell";
  EXPECT_THAT(Validate(with({5, 0}, {3})),
              Fails(kInvalid, "fullest_expert_rows has 1 entries, but expert_rows has 2"));
  EXPECT_THAT(Validate(with({5, 2}, {5, 3})),
              Fails(kInvalid, "fullest_expert_rows[1] is 3, but all experts of the rank have 2"));
  EXPECT_THAT(Validate(with(std::vector<uint64_t>(4097, 1), {})),
              Fails(kInvalid, "expert_rows has 4097 entries: at most 4096"));
}

TEST(RequestValidationTest, AWorkerTellsItsHost) {
  auto request = MakeRegistration(1);
  request.clear_host();
  EXPECT_THAT(Validate(request), Fails(kInvalid, "host is empty"));
  request.set_host(std::string(256, 'h'));
  EXPECT_THAT(Validate(request), Fails(kInvalid, "host has 256 bytes"));
}

TEST(RequestValidationTest, TimesAreNotNegative) {
  auto report = MakeReport(0, 0);
  report.set_duration_ns(-1);
  EXPECT_THAT(Validate(report), Fails(kInvalid, "duration_ns is negative"));
  report = MakeReport(0, 0);
  report.set_waited_for_program_ns(-1);
  EXPECT_THAT(Validate(report), Fails(kInvalid, "waited_for_program_ns is negative"));
  report = MakeReport(0, 0);
  report.mutable_instructions(1)->set_duration_ns(-1);
  EXPECT_THAT(Validate(report), Fails(kInvalid, "instructions[1].duration_ns is negative"));
}

TEST(RequestValidationTest, ARankWaitsForItsGroupForNoLongerThanItsPassTakes) {
  auto report = MakeReport(0, 0);
  v1::MeasuredInstruction& pass = *report.mutable_instructions(1);
  pass.set_duration_ns(70);
  for (const int64_t waited : {0, 70}) {
    pass.set_exchange_ns(waited);
    EXPECT_TRUE(Validate(report).ok()) << Validate(report);
  }
  for (const int64_t waited : {-1, 71}) {
    pass.set_exchange_ns(waited);
    EXPECT_THAT(Validate(report), Fails(kInvalid, absl::StrCat("instructions[1].exchange_ns is ", waited,
                                                               ": at least 0, at most its duration_ns, 70")));
  }
  auto validated = MakeReport(0, 0);
  validated.mutable_validation()->add_instructions()->set_exchange_ns(1);
  EXPECT_THAT(Validate(validated), Fails(kInvalid, "validation.instructions[0].exchange_ns is 1"));
}

TEST(RequestValidationTest, AValidationIsABatchOfTheSameIterationWithoutOneItself) {
  v1::SubmitBatchesRequest request = MakeSubmission("job", 5, 6);
  v1::Batch& validation = *request.mutable_batches(0)->mutable_validation();
  validation = MakeSubmission("job", 5, 6).batches(0);
  EXPECT_TRUE(Validate(request).ok());
  validation.set_iteration(6);
  EXPECT_THAT(Validate(request), Fails(kInvalid, "batches[0].validation.iteration is 6"));
  validation.set_iteration(5);
  validation.mutable_validation();
  EXPECT_THAT(Validate(request), Fails(kInvalid, "batches[0].validation.validation is set"));
  validation.clear_validation();
  validation.clear_samples();
  EXPECT_THAT(Validate(request), Fails(kInvalid, "batches[0].validation.samples is empty"));
}

TEST(RequestValidationTest, TheLossOfAValidationMayBeNoNumber) {
  v1::ReportIterationRequest report = MakeReport(0, 1);
  report.mutable_validation()->set_loss(std::nan(""));
  report.mutable_validation()->add_tasks()->set_loss(std::numeric_limits<double>::infinity());
  EXPECT_TRUE(Validate(report).ok());
  report.mutable_validation()->set_duration_ns(-1);
  EXPECT_THAT(Validate(report), Fails(kInvalid, "validation.duration_ns is negative"));
}

}  // namespace
}  // namespace penstock
