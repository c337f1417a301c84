// What PostgreSQL's errors mean to whoever operates a planner.
#pragma once

#include <libpq-fe.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock {

// The error of a statement, by its SQLSTATE. `server` is for the message, which says what to do.
absl::Status PostgresError(const PGresult* result, const std::string& server);

// The server cannot be reached, or no longer.
absl::Status ConnectionError(absl::string_view text, const std::string& server);

// "host:port/database" of a URL: no user, no password.
std::string ServerOf(const std::string& url);

}  // namespace penstock
