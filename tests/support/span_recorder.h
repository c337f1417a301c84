// Keeps spans, in place of an exporter.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/sync/sync.h"
#include "common/tracing/trace_span.h"

namespace penstock {

// Thread-safe.
class SpanRecorder final : public SpanSink {
 public:
  void Add(TraceSpan span) override {
    MutexLock lock(&mutex_);
    spans_.push_back(std::move(span));
    added_.SignalAll();
  }

  // Blocks until there are so many: other threads tell of what they did after somebody saw it. False: they
  // did not come.
  bool Await(size_t count) {
    constexpr absl::Duration kPatience = absl::Seconds(60);
    const absl::Time deadline = absl::Now() + kPatience;
    MutexLock lock(&mutex_);
    while (spans_.size() < count) {
      if (absl::Now() >= deadline) return false;
      added_.WaitWithTimeout(&mutex_, deadline - absl::Now());
    }
    return true;
  }

  std::vector<TraceSpan> spans() const {
    MutexLock lock(&mutex_);
    return spans_;
  }

  // In the order of their ends.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const TraceSpan& span : spans()) names.push_back(span.name);
    return names;
  }

 private:
  mutable Mutex mutex_;
  CondVar added_;
  std::vector<TraceSpan> spans_ ABSL_GUARDED_BY(mutex_);
};

// A number or a text, as text; empty: it has none of that name.
inline std::string AttributeOf(const TraceSpan& span, const std::string& key) {
  for (const SpanAttribute& attribute : span.attributes) {
    if (attribute.key != key) continue;
    if (const auto* number = std::get_if<int64_t>(&attribute.value)) return absl::StrCat(*number);
    if (const auto* number = std::get_if<double>(&attribute.value)) return absl::StrCat(*number);
    if (const auto* text = std::get_if<std::string>(&attribute.value)) return *text;
  }
  return "";
}

}  // namespace penstock
