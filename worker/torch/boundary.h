// The one place where LibTorch's exceptions become absl::Status. Everything in worker/ that may throw runs
// inside.
//
//   absl::StatusOr<at::Tensor> product = CallTorch("the product", [&] { return at::matmul(a, b); });
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock::worker {

// Runs `body`; messages of errors begin with `what`.
// Possible errors: RESOURCE_EXHAUSTED (out of memory), UNAVAILABLE (a peer or the store is gone or silent),
// INTERNAL (anything else that was thrown).
absl::Status RunTorch(absl::string_view what, const std::function<void()>& body);

// The same for a body that returns a value.
template <typename Body>
auto CallTorch(absl::string_view what, Body body) -> absl::StatusOr<decltype(body())> {
  std::optional<decltype(body())> value;
  const absl::Status status = RunTorch(what, [&] { value.emplace(body()); });
  if (!status.ok()) return status;
  return *std::move(value);
}

}  // namespace penstock::worker
