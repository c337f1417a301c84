// A commit whose outcome is not known: the server was told to commit and then the connection was lost. When
// its caller commits the same changes again and it turns out that they took effect, they are not done twice.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "planner/service/store/event_store.h"

namespace penstock {

class UncertainCommit {
 public:
  explicit UncertainCommit(absl::Span<const JobChange> changes);

  // What follows the changes of this commit. ABORTED when `changes` do not begin with them.
  absl::StatusOr<absl::Span<const JobChange>> Rest(absl::Span<const JobChange> changes) const;

 private:
  size_t count_;
  // SHA-256 of the changes: they may be large, and are the caller's.
  std::string digest_;
};

}  // namespace penstock
