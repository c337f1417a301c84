// Changes and jobs for tests of stores.
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/service/store/event_store.h"

namespace penstock {

// Events as the text "job/sequence".
inline std::vector<std::string> MakeEvents(uint64_t job, uint64_t first_sequence, int count) {
  std::vector<std::string> events;
  for (int i = 0; i < count; ++i) events.push_back(absl::StrCat(job, "/", first_sequence + i));
  return events;
}

// Appends events; creates the job when they are its first.
inline JobChange Append(uint64_t job, uint64_t first_sequence, int count) {
  return {.job = job,
          .job_id = first_sequence == 1 ? absl::StrCat("job-", job) : "",
          .first_sequence = first_sequence,
          .events = MakeEvents(job, first_sequence, count)};
}

inline JobChange AddBatch(uint64_t job, uint64_t iteration, std::string batch) {
  return {.job = job, .batches = {{iteration, std::move(batch)}}};
}

inline JobChange AddSnapshot(uint64_t job, uint64_t sequence, std::string bytes) {
  return {.job = job, .snapshot = Snapshot{.sequence = sequence, .bytes = std::move(bytes)}};
}

inline JobChange Remove(uint64_t job) { return {.job = job, .remove = true}; }

// Matches a StoredJob without snapshot whose events are those of MakeEvents.
MATCHER_P3(HasEvents, job, first_sequence, count, "") {
  *result_listener << "job " << arg.job << ", " << arg.events.size() << " events from " << arg.first_sequence;
  return arg.job == static_cast<uint64_t>(job) && arg.job_id == absl::StrCat("job-", job) &&
         arg.first_sequence == static_cast<uint64_t>(first_sequence) &&
         arg.events == MakeEvents(job, first_sequence, count);
}

}  // namespace penstock
