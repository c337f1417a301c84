// Keeps spans, in place of an exporter.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/sync/sync.h"
#include "common/tracing/trace_span.h"

namespace penstock {

// Thread-safe.
class SpanRecorder final : public SpanSink {
 public:
  void Add(TraceSpan span) override {
    MutexLock lock(&mutex_);
    spans_.push_back(std::move(span));
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
