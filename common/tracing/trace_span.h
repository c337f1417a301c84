// A span: what took place from when to when, in OpenTelemetry's words, as plain values.
//
//   TraceSpan span = ChildSpan(TraceOfBatch("mix", 12), "plan");   // batch_trace.h
//   span.start = began;
//   span.end = clock.TimeOfDay();
//   span.attributes = {{"penstock.job", "mix"}};
//   sink->Add(std::move(span));
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace penstock {

using SpanValue = std::variant<std::string, int64_t, double, bool>;

struct SpanAttribute {
  std::string key;
  SpanValue value;
};

// A span of somebody else's, of whatever trace.
struct SpanLink {
  // 16 bytes.
  std::string trace_id;
  // 8 bytes.
  std::string span_id;
  // W3C's.
  uint8_t flags = 0;
  std::string state = {};
};

enum class SpanKind : uint8_t {
  kInternal,
  // It answers a call of another process.
  kServer,
};

struct TraceSpan {
  // 16 bytes.
  std::string trace_id;
  // 8 bytes.
  std::string span_id;
  // 8 bytes; empty: the root of its trace.
  std::string parent_id = {};
  std::string name;
  SpanKind kind = SpanKind::kInternal;
  // Times of day.
  absl::Time start = {};
  absl::Time end = {};
  std::vector<SpanAttribute> attributes = {};
  std::vector<SpanLink> links = {};
  // How it ended.
  absl::Status status = absl::OkStatus();
};

// Where spans go when they are over.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  // Any thread; does not block.
  virtual void Add(TraceSpan span) = 0;
};

}  // namespace penstock
