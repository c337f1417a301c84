#include "common/tracing/batch_trace.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/hash/sha256.h"

namespace penstock {
namespace {

constexpr size_t kTraceIdBytes = 16;
constexpr size_t kSpanIdBytes = 8;
// Of what ids are made of: another number where that changes, so that programs of two versions do not mix
// half-agreeing spans.
constexpr absl::string_view kTag = "penstock.batch_trace.1";

// OpenTelemetry's ids have no zero.
std::string NewSpanId() {
  thread_local std::mt19937_64 random(std::random_device{}());
  uint64_t bits = 0;
  while (bits == 0) bits = random();
  std::string id(kSpanIdBytes, '\0');
  for (char& byte : id) {
    byte = static_cast<char>(bits);
    bits >>= 8;
  }
  return id;
}

}  // namespace

BatchTrace TraceOfBatch(absl::string_view job_id, uint64_t iteration) {
  // Ids of jobs have no line breaks.
  const std::string digest = Sha256(absl::StrCat(kTag, "\n", job_id, "\n", iteration));
  return {.trace_id = digest.substr(0, kTraceIdBytes), .root_id = digest.substr(kTraceIdBytes, kSpanIdBytes)};
}

TraceSpan RootSpan(const BatchTrace& trace, std::string name) {
  return {.trace_id = trace.trace_id, .span_id = trace.root_id, .name = std::move(name)};
}

TraceSpan ChildSpan(const BatchTrace& trace, std::string name) {
  return {.trace_id = trace.trace_id,
          .span_id = NewSpanId(),
          .parent_id = trace.root_id,
          .name = std::move(name)};
}

}  // namespace penstock
