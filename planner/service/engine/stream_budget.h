// Memory of what streams hold: messages that were made and that nobody has read yet.
//
//   StreamBudget budget(512 << 20);
//   PENSTOCK_ASSIGN_OR_RETURN(ProgramBytes program, budget.Hold(owner, bytes));
//   ... the transport keeps `program` until its reader has taken it; then its bytes are free again.
//
// Who holds how much is counted by owner. While there is room everybody may take it. When there is none, an
// owner may still hold up to an equal share, so that one owner's streams, however many they are, never cost
// another its own. So at most twice the budget is held, and only while new owners come. Thread-safe; may be
// destroyed before what it counts.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock {

// The bytes of a program's message, shared by all streams that send it.
using ProgramBytes = std::shared_ptr<const std::string>;

class StreamBudget {
 public:
  explicit StreamBudget(size_t bytes);

  // Counts the message for as long as anybody has it.
  // Possible errors: RESOURCE_EXHAUSTED (says how much the owner holds and what to do).
  absl::StatusOr<ProgramBytes> Hold(const std::string& owner, std::string message) const;
  // The same for what must be sent whatever is held.
  ProgramBytes HoldAnyway(const std::string& owner, std::string message) const;
  // Counts `bytes` for as long as the result is kept. Possible errors: as Hold.
  absl::StatusOr<std::shared_ptr<void>> HoldBytes(const std::string& owner, size_t bytes) const;
  std::shared_ptr<void> HoldBytesAnyway(const std::string& owner, size_t bytes) const;

  // Of all owners.
  size_t held() const;

 private:
  class Counts;
  // Returns what was taken when the last holder lets go of it.
  ProgramBytes Counted(const std::string& owner, std::string message) const;
  std::shared_ptr<void> Counted(const std::string& owner, size_t bytes) const;

  const std::shared_ptr<Counts> counts_;
};

}  // namespace penstock
