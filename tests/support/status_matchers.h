// Matchers for absl::Status and absl::StatusOr.
//
//   EXPECT_THAT(store.GetBatch(7, 3), Fails(absl::StatusCode::kNotFound, "iteration 3"));
#pragma once

#include <gmock/gmock.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock {

// Matches an absl::Status or StatusOr by code and a part of its message.
MATCHER_P2(Fails, code, part, "") {
  const absl::Status status = [&] {
    if constexpr (requires { arg.status(); }) {
      return arg.status();
    } else {
      return arg;
    }
  }();
  *result_listener << status.ToString();
  return status.code() == code && status.message().find(part) != absl::string_view::npos;
}

// Matches an absl::Status or StatusOr that is OK.
MATCHER(IsOk, "") {
  if (arg.ok()) return true;
  if constexpr (requires { arg.status(); }) {
    *result_listener << arg.status().ToString();
  } else {
    *result_listener << arg.ToString();
  }
  return false;
}

}  // namespace penstock
