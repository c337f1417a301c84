// The trace of a batch, on which planner and workers agree without telling each other: its ids follow from
// job and iteration.
//
//   TraceSpan span = ChildSpan(TraceOfBatch("mix", 12), "plan");
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/tracing/trace_span.h"

namespace penstock {

struct BatchTrace {
  // 16 bytes.
  std::string trace_id;
  // 8 bytes, of the span of the whole batch.
  std::string root_id;
};

// Of a SHA-256, so that a collector that keeps a share of all traces by their ids keeps whole batches.
BatchTrace TraceOfBatch(absl::string_view job_id, uint64_t iteration);

// The span of the whole batch.
TraceSpan RootSpan(const BatchTrace& trace, std::string name);
// A part of it, with an id of its own that nobody else has.
TraceSpan ChildSpan(const BatchTrace& trace, std::string name);

}  // namespace penstock
