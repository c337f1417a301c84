#include "common/tracing/span_exporter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"
#include "common/backoff/backoff.h"
#include "common/logging/logging.h"
#include "common/sync/thread_name.h"

namespace penstock {
namespace {

bool IsWorthAnotherTry(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
}

}  // namespace

SpanExporter::SpanExporter(const SpanExporterOptions& options, std::unique_ptr<SpanTransport> transport)
    : options_(options), transport_(std::move(transport)), thread_([this] { Run(); }) {}

SpanExporter::~SpanExporter() { Stop(absl::ZeroDuration()); }

void SpanExporter::Add(TraceSpan span) {
  MutexLock lock(&mutex_);
  if (stopping_ || queue_.size() >= options_.queue_capacity) {
    ++counts_.queue_full;
    return;
  }
  queue_.push_back(std::move(span));
  // The thread waits for the first of a batch, and for a whole one.
  if (queue_.size() == 1 || queue_.size() == options_.batch_size) changed_.SignalAll();
}

SpanCounts SpanExporter::counts() const {
  MutexLock lock(&mutex_);
  return counts_;
}

void SpanExporter::Stop(absl::Duration flush) {
  MutexLock joining(&join_mutex_);
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
    const absl::Time end = absl::Now() + flush;
    while (!ended_ && !failing_ && absl::Now() < end) changed_.WaitWithTimeout(&mutex_, end - absl::Now());
  }
  transport_->Cancel();
  thread_.join();
}

void SpanExporter::Run() {
  NameThisThread("spans");
  for (std::vector<TraceSpan> spans = Next(); !spans.empty(); spans = Next()) Deliver(spans);
  MutexLock lock(&mutex_);
  ended_ = true;
  changed_.SignalAll();
}

std::vector<TraceSpan> SpanExporter::Next() {
  MutexLock lock(&mutex_);
  while (queue_.empty() && !stopping_) changed_.Wait(&mutex_);
  const absl::Time end = absl::Now() + options_.batch_delay;
  while (queue_.size() < options_.batch_size && !stopping_ && absl::Now() < end)
    changed_.WaitWithTimeout(&mutex_, end - absl::Now());
  const auto last =
      queue_.begin() + static_cast<std::ptrdiff_t>(std::min(queue_.size(), options_.batch_size));
  std::vector<TraceSpan> spans(std::make_move_iterator(queue_.begin()), std::make_move_iterator(last));
  queue_.erase(queue_.begin(), last);
  return spans;
}

bool SpanExporter::MaySend() const {
  MutexLock lock(&mutex_);
  return !stopping_ || !failing_;
}

void SpanExporter::Deliver(const std::vector<TraceSpan>& spans) {
  Backoff backoff(options_.first_pause, options_.longest_pause);
  const absl::Time end = absl::Now() + options_.give_up_after;
  absl::Status status = absl::UnavailableError("the collector did not answer before");
  while (MaySend()) {
    const absl::StatusOr<size_t> refused = transport_->Send(spans, options_.send_timeout);
    if (refused.ok()) return Delivered(spans.size(), *refused);
    status = refused.status();
    NoteFailure(status);
    if (!IsWorthAnotherTry(status) || absl::Now() >= end || !Pause(backoff.Next())) break;
  }
  GiveUp(spans.size(), status);
}

void SpanExporter::Delivered(size_t spans, size_t refused) {
  bool failed_before = false;
  {
    MutexLock lock(&mutex_);
    const size_t lost = std::min(spans, refused);
    counts_.exported += spans - lost;
    counts_.refused += lost;
    failed_before = std::exchange(failing_, false);
  }
  if (failed_before) LogInfo("spans are delivered again");
}

void SpanExporter::NoteFailure(const absl::Status& why) {
  bool failed_before = false;
  {
    MutexLock lock(&mutex_);
    failed_before = std::exchange(failing_, true);
    changed_.SignalAll();
  }
  if (!failed_before && !absl::IsCancelled(why))
    LogWarning("spans are not delivered", {{"reason", why.ToString()}});
}

void SpanExporter::GiveUp(size_t spans, const absl::Status& why) {
  MutexLock lock(&mutex_);
  if (IsWorthAnotherTry(why) || absl::IsCancelled(why)) {
    counts_.undelivered += spans;
  } else {
    counts_.refused += spans;
  }
}

bool SpanExporter::Pause(absl::Duration pause) {
  MutexLock lock(&mutex_);
  const absl::Time end = absl::Now() + pause;
  while (!stopping_ && absl::Now() < end) changed_.WaitWithTimeout(&mutex_, end - absl::Now());
  return !stopping_;
}

}  // namespace penstock
