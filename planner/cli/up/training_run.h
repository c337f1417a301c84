// Drives one registered job on a planner from the client's side: feeds batches as far ahead as the planner
// takes them, and watches iterations complete.
//
//   TrainingRun run(client, job, batch_source);
//   while (!run.finished()) PENSTOCK_RETURN_IF_ERROR(run.Step(on_iteration));   // never blocks for long
//
// A job that has batches already, of a feeder before this one, goes on behind them; the last of them is
// submitted once more, so that the planner refuses a source that makes other batches. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "penstock/client/planner_client.h"
#include "penstock/v1/planner_service.pb.h"
#include "planner/cli/up/batch_source.h"

namespace penstock::cli {

// Batches behind the last completed iteration that a planner is given once costs follow what is measured,
// where iterations and planning them take so long: enough for planning never to be waited for, and few,
// because what is planned keeps its costs. At most `most`.
uint64_t WindowOfTimes(absl::Duration iteration, absl::Duration planning, uint64_t most);

class TrainingRun {
 public:
  // How long a planner may fail to answer: longer than workers wait for one.
  static constexpr absl::Duration kPatience = absl::Seconds(70);
  // What a failed epoch is: the end of the run, or something that passes, because its workers join another.
  enum class Epochs : uint8_t { kOne, kMany };

  // `client` and `source` are not owned.
  TrainingRun(PlannerClient& client, const v1::JobSpec& job, BatchSource& source,
              absl::Duration patience = kPatience, Epochs epochs = Epochs::kOne);

  // Submits what the planner's window takes and calls `on_iteration` for each iteration that has completed
  // since the last step, ascending. When a new epoch has gone back, iterations come again from at least the
  // first that is done again, those before it as they were: where one is not, what came before of it, and
  // after it, is no longer true. A planner that
  // does not answer (UNAVAILABLE, DEADLINE_EXCEEDED) is asked again in the next step. Possible errors:
  // FAILED_PRECONDITION (with one epoch: the job failed; the message names the rank), those of SubmitBatches
  // and GetJob; UNAVAILABLE and DEADLINE_EXCEEDED only after `patience`.
  absl::Status Step(const std::function<void(const v1::IterationSummary&)>& on_iteration);

  // How long nothing is missed when the next step waits: where all is well and enough is planned, until the
  // next iteration is done, at most a quarter of a second; else 50 ms.
  absl::Duration Pause() const;

  // No batch from this iteration on is submitted.
  void FeedUntil(uint64_t end) { feed_end_ = end; }

  bool finished() const { return status_.state() == v1::JOB_STATE_FINISHED; }
  // The planner has taken every batch of the job, which is never true of one without an end.
  bool fed() const { return job_.training().iterations() > 0 && next_batch_ >= job_.training().iterations(); }
  // Whether the job takes no more batches although it has no end yet, or one further on: what it has taken is
  // still run (DrainJob).
  bool drains() const { return drains_; }
  // The iteration whose batch is submitted next.
  uint64_t next_batch() const { return next_batch_; }
  // The planner's last answer, and for how long it has not answered since. One that takes no batches is not
  // silent.
  const v1::JobStatus& status() const { return status_; }
  absl::Duration silence() const;
  // What the planner could not do just now (take a batch, while its store cannot be written), and since when;
  // empty when nothing is wrong.
  const std::string& trouble() const { return trouble_; }
  // Why an owner's quota does not let the planner take the next batch yet; empty where none holds it.
  const std::string& held_by_quota() const { return held_by_quota_; }
  absl::Duration troubled_for() const {
    return trouble_.empty() ? absl::ZeroDuration() : absl::Now() - last_answer_;
  }

 private:
  absl::Status Watch(const std::function<void(const v1::IterationSummary&)>& on_iteration);
  // Where the job's batches end, once; those that a feeder before this one has submitted.
  void FindPlace();
  absl::Status Feed();
  absl::StatusOr<v1::GetJobResponse> GetJob(uint64_t from_iteration);
  // Takes what the planner says of the job.
  void Take(const v1::JobStatus& status);
  // A refused batch: OK where the job drains, or its epoch has failed meanwhile, and that passes.
  absl::Status ExplainRefusal(const absl::Status& refusal);
  // Batches behind the last completed iteration that the planner is given.
  uint64_t Window() const;
  // Whether the window has room for the next batch, and the planner has not just refused it.
  bool MayFeed() const;
  // There are batches that the job has not, and may have.
  bool HasMore() const;
  void Refused();

  PlannerClient& client_;
  const v1::JobSpec job_;
  BatchSource& source_;
  const absl::Duration patience_;
  const Epochs epochs_;
  const uint64_t window_;
  uint64_t next_batch_;
  uint64_t feed_end_ = std::numeric_limits<uint64_t>::max();
  bool place_found_ = false;
  uint64_t next_summary_;
  // The first iteration that not every rank has reported.
  uint64_t completed_;
  // When it last did all that it was asked for, and when it last said how the job is.
  absl::Time last_answer_;
  absl::Time last_heard_;
  bool heard_ = true;
  std::string trouble_;
  std::string held_by_quota_;
  bool drains_ = false;
  // A batch that is made and not taken yet.
  std::optional<v1::Batch> made_;
  // The planner refused a batch although the window has room: not before this time, or until more is
  // completed.
  absl::Duration pause_;
  absl::Time retry_at_ = absl::InfinitePast();
  uint64_t completed_when_refused_ = 0;
  // Of the last iteration that is done.
  absl::Duration iteration_time_;
  absl::Duration planning_time_;
  v1::JobStatus status_;
};

}  // namespace penstock::cli
