// The page of a planner, for a browser: jobs and how they run. Read-only; it loads nothing from elsewhere.
//
//   /                              the page, and its files beside it
//   /data/jobs                     JobsAsJson
//   /data/job?id=mix               JobAsJson
//   /data/iteration?job=mix&iteration=7&replica=0    IterationAsJson; without `replica`: all of them
//
// Errors of /data are {"error": "..."}: 400 (a parameter), 404 (no such job, iteration no longer held), 503
// (a standby, or no longer in memory).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/http/http_server.h"
#include "planner/service/rpc/engine_slot.h"

namespace penstock {

struct PageOptions {
  // "host:port"; port 0 picks a free one.
  std::string listen;
  // Serves other machines, although the page asks nobody who reads it.
  bool allow_anyone = false;
};

// What the page answers, without a listener. Thread-safe.
HttpAnswer AnswerPage(const EngineSlot& engines, const HttpRequest& request);

// `engines` must outlive the server.
// Possible errors: INVALID_ARGUMENT (nobody should listen there), those of ListenError; all name the flag.
absl::StatusOr<std::unique_ptr<HttpServer>> ServePage(const PageOptions& options, const EngineSlot* engines);

}  // namespace penstock
