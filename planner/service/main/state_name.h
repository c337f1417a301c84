// The states of a job as metrics name them.
#pragma once

#include <string>

#include "penstock/v1/planner_service.pb.h"

namespace penstock {

// "RUNNING" for JOB_STATE_RUNNING.
inline std::string StateName(v1::JobState state) {
  constexpr size_t kPrefix = sizeof("JOB_STATE_") - 1;
  return v1::JobState_Name(state).substr(kPrefix);
}

}  // namespace penstock
