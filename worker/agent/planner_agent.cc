#include "worker/agent/planner_agent.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/backoff/backoff.h"
#include "common/logging/logging.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "common/sync/sync.h"
#include "worker/agent/call_times.h"
#include "worker/agent/heartbeat.h"
#include "worker/agent/lingering.h"
#include "worker/agent/planner_link.h"
#include "worker/agent/program_reader.h"
#include "worker/agent/report_sender.h"

namespace penstock::worker {
namespace {

constexpr absl::Duration kDefaultHeartbeatInterval = absl::Seconds(1);

// What a stream or report is refused for, where a heartbeat is not: a planner may have been killed between
// failing the epoch and writing that down, and the one after it knows nothing of it. So no such refusal ends
// the worker: it registers for another epoch, which is refused too if there can be none.
absl::Status OfThisEpochAlone(const absl::Status& refusal) {
  return absl::IsFailedPrecondition(refusal) ? absl::AbortedError(refusal.message()) : refusal;
}

class PlannerAgentImpl : public PlannerAgent {
 public:
  PlannerAgentImpl(std::unique_ptr<PlannerLink> link, const AgentOptions& options, RegistrationAnswer answer)
      : link_(std::move(link)),
        registration_(std::move(answer.registration)),
        planner_timeout_(options.planner_timeout),
        heartbeat_interval_(answer.heartbeat_interval > absl::ZeroDuration() ? answer.heartbeat_interval
                                                                             : kDefaultHeartbeatInterval),
        self_{.job_id = options.job_id,
              .rank = registration_.rank,
              .incarnation = options.incarnation,
              .epoch = registration_.epoch},
        reports_(*link_, self_, [this](const absl::Status& why) { AskWhy(why); }),
        heartbeat_(*link_, self_,
                   {.interval = heartbeat_interval_,
                    .planner_timeout = options.planner_timeout,
                    .planner = options.planner},
                   [this](const absl::Status& why) { TellAll(why); }) {}

  ~PlannerAgentImpl() override {
    {
      MutexLock lock(&mutex_);
      listener_ = nullptr;
    }
    Stop(absl::CancelledError("the worker has ended"));
    // Each of the threads may be the one that tells the others of a failure: none goes before all have ended.
    heartbeat_.Join();
    if (programs_ != nullptr) programs_->Join();
    reports_.Join();
  }

  const Registration& registration() const override { return registration_; }

  void SetFailureListener(FailureListener listener) override {
    absl::Status failed;
    {
      MutexLock lock(&mutex_);
      failed = told_;
      if (failed.ok()) listener_ = listener;
    }
    if (!failed.ok()) listener(failed);
  }

  void AnnounceRendezvous(const std::string& address) override { heartbeat_.Announce(address); }

  absl::StatusOr<Rendezvous> WaitUntilReady(absl::Duration timeout) override {
    return heartbeat_.WaitUntilReady(timeout);
  }

  void StartPrograms(uint64_t first_iteration) override {
    auto reader = std::make_unique<ProgramReader>(*link_, self_, registration_.job, first_iteration,
                                                  [this](const absl::Status& why) { AskWhy(why); });
    absl::Status failed;
    {
      MutexLock lock(&mutex_);
      programs_ = std::move(reader);
      failed = told_;
    }
    if (!failed.ok()) programs_->Stop(failed);
  }

  absl::StatusOr<NextProgram> Next() override { return programs_->Next(); }
  std::shared_ptr<const Program> Upcoming() override { return programs_->Upcoming(); }
  absl::Status Report(IterationReport report) override { return reports_.Send(std::move(report)); }
  absl::Status FlushReports(absl::Duration timeout) override { return reports_.Flush(timeout); }
  uint64_t Reported() const override { return reports_.delivered(); }

  absl::Status ReportFailure(const absl::Status& failure, absl::Duration timeout) override {
    return heartbeat_.ReportFailure(failure, timeout);
  }

  void Leave() override { heartbeat_.SendNow({.leaving = true}, absl::Seconds(1)).IgnoreError(); }

  void Stop(const absl::Status& reason) override { heartbeat_.Fail(reason); }

  void Linger() override { lingering_.emplace(*link_, self_, heartbeat_interval_); }
  absl::Status SendLeftReports(absl::Duration timeout) override {
    reports_.Stop(absl::CancelledError("the epoch has failed"));
    return reports_.SendLeft(timeout);
  }
  absl::StatusOr<uint64_t> Completed() override { return link_->Completed(self_, kCallTimeout); }

 private:
  // A refused report or stream often means that the epoch has failed; the heartbeat's answer names the rank
  // that did. Otherwise it is this rank, which got a program that it cannot run, say: the planner hears of it
  // before the peers see connections close.
  void AskWhy(const absl::Status& refusal) {
    heartbeat_.SendUntilAnswered({}, planner_timeout_);
    const absl::Status error = OfThisEpochAlone(refusal);
    ReportFailure(error, planner_timeout_).IgnoreError();
    heartbeat_.Fail(error);
  }

  // The one place where a failure becomes known to everyone.
  void TellAll(const absl::Status& why) {
    FailureListener listener;
    ProgramReader* programs;
    {
      MutexLock lock(&mutex_);
      told_ = why;
      listener = std::move(listener_);
      programs = programs_.get();
    }
    reports_.Stop(why);
    if (programs != nullptr) programs->Stop(why);
    if (listener) listener(why);
  }

  const std::unique_ptr<PlannerLink> link_;
  const Registration registration_;
  const absl::Duration planner_timeout_;
  const absl::Duration heartbeat_interval_;
  const WorkerIdentity self_;

  Mutex mutex_;
  FailureListener listener_ ABSL_GUARDED_BY(mutex_);
  absl::Status told_ ABSL_GUARDED_BY(mutex_);
  // Set once, by the thread that trains; read without the lock by that thread alone.
  std::unique_ptr<ProgramReader> programs_;

  ReportSender reports_;
  Heartbeat heartbeat_;
  // Once the epoch has failed.
  std::optional<Lingering> lingering_;
};

// A planner that starts, or a job that is not registered yet, is worth another try.
bool IsWorthRetrying(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsNotFound(status);
}

// Who holds the rank may be gone without the planner's knowing it yet.
bool IsTaken(const absl::Status& status) {
  return absl::IsAlreadyExists(status) || absl::IsResourceExhausted(status);
}

// In words for people, where certificates are why there is no connection.
absl::Status Explained(const absl::Status& status, const ChannelSecurity& channel,
                       const std::string& planner) {
  if (!absl::IsUnavailable(status) || channel.explain == nullptr) return status;
  const absl::Status why = channel.explain(planner);
  return why.ok() ? status : why;
}

absl::Status Sleep(absl::Duration time) {
  std::this_thread::sleep_for(absl::ToChronoMilliseconds(time));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PlannerAgent>> PlannerAgent::Register(const AgentOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const ChannelSecurity channel, SecurityOfChannels(options.security));
  std::unique_ptr<PlannerLink> link = PlannerLink::Connect(options.planner, channel);
  const RegistrationRequest request = {.job_id = options.job_id,
                                       .incarnation = options.incarnation,
                                       .host = options.host,
                                       .rank = options.rank,
                                       .first_iteration = options.first_iteration};
  const std::function<absl::Status(absl::Duration)> wait = options.wait ? options.wait : Sleep;
  const absl::Time start = absl::Now();
  Backoff retry(kFirstRetry, kLongestRetry);
  std::string said;
  for (;;) {
    absl::StatusOr<RegistrationAnswer> answer = link->Register(request, kCallTimeout);
    if (answer.ok()) return std::make_unique<PlannerAgentImpl>(std::move(link), options, *std::move(answer));
    const absl::Status failure = Explained(answer.status(), channel, options.planner);
    const absl::Duration patience = IsWorthRetrying(failure) ? options.planner_timeout
                                    : IsTaken(failure)       ? options.taken_timeout
                                                             : absl::ZeroDuration();
    if (absl::Now() - start >= patience) {
      if (absl::IsUnavailable(failure)) {
        return absl::DeadlineExceededError(
            absl::StrCat("the planner at ", options.planner, " has not answered for ",
                         absl::FormatDuration(options.planner_timeout), ": ", failure.message()));
      }
      return AnnotateError(failure, absl::StrCat("the planner at ", options.planner));
    }
    // Above all what is wrong with certificates: somebody has to mend that.
    if (const std::string reason(failure.message()); reason != said) {
      LogWarning("not registered yet; trying again", {{"planner", options.planner}, {"reason", reason}});
      said = reason;
    }
    PENSTOCK_RETURN_IF_ERROR(wait(retry.Next()));
  }
}

}  // namespace penstock::worker
