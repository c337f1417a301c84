// Takes spans and has them sent in the background, so that who adds one neither waits nor fails.
//
//   SpanExporter exporter({}, ConnectToCollector(...));   // otlp_transport.h
//   exporter.Add(span);
//   ...
//   exporter.Stop(absl::Seconds(2));
//
// What waits is bounded: spans that find no room, and those that a collector does not take in time, are
// dropped and counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/sync/sync.h"
#include "common/tracing/trace_span.h"

namespace penstock {

// How spans leave the process.
class SpanTransport {
 public:
  virtual ~SpanTransport() = default;
  // Blocks until the collector has answered, for `timeout` at most; waits for a collector that is away as
  // long. Returns how many spans the collector refused for good. One thread at a time.
  // Possible errors: UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED (try again); any other: it never
  // takes them.
  virtual absl::StatusOr<size_t> Send(const std::vector<TraceSpan>& spans, absl::Duration timeout) = 0;
  // Ends the Send that runs, and every later one. Any thread.
  virtual void Cancel() = 0;
};

struct SpanExporterOptions {
  // Spans that wait; about half a kilobyte each.
  size_t queue_capacity = 4096;
  // Sent at a time.
  size_t batch_size = 512;
  // How long a span waits for others.
  absl::Duration batch_delay = absl::Seconds(1);
  // Of one try, and of all tries with the same spans.
  absl::Duration send_timeout = absl::Seconds(5);
  absl::Duration give_up_after = absl::Seconds(30);
  // Between two tries, at first and at most.
  absl::Duration first_pause = absl::Milliseconds(100);
  absl::Duration longest_pause = absl::Seconds(5);
};

// What became of spans so far.
struct SpanCounts {
  uint64_t exported = 0;
  // Dropped: they found no room; the collector did not take them in time; it refused them.
  uint64_t queue_full = 0;
  uint64_t undelivered = 0;
  uint64_t refused = 0;
};

// Thread-safe.
class SpanExporter final : public SpanSink {
 public:
  SpanExporter(const SpanExporterOptions& options, std::unique_ptr<SpanTransport> transport);
  // Stops without waiting.
  ~SpanExporter() override;
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  void Add(TraceSpan span) override;
  SpanCounts counts() const;

  // Sends what waits, for at most `flush`; for no time where the collector did not answer last. Later spans
  // are dropped. Blocks until that is done. Idempotent.
  void Stop(absl::Duration flush);

 private:
  void Run();
  // The next spans to send; none: it is stopped.
  std::vector<TraceSpan> Next();
  // Blocks until the spans are delivered or given up.
  void Deliver(const std::vector<TraceSpan>& spans);
  void Delivered(size_t spans, size_t refused);
  // Of one try. The first of several in a row is logged.
  void NoteFailure(const absl::Status& why);
  void GiveUp(size_t spans, const absl::Status& why);
  // False when it is stopped meanwhile.
  bool Pause(absl::Duration pause);
  bool MaySend() const;

  const SpanExporterOptions options_;
  const std::unique_ptr<SpanTransport> transport_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<TraceSpan> queue_ ABSL_GUARDED_BY(mutex_);
  SpanCounts counts_ ABSL_GUARDED_BY(mutex_);
  // The last try failed.
  bool failing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  Mutex join_mutex_;
  // Last, so that it finds the others.
  std::thread thread_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace penstock
