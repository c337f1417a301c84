// Several started operations as one.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "worker/comm/communicator.h"

namespace penstock::worker {

// With none, it has ended.
class PendingAll : public PendingTransfer {
 public:
  explicit PendingAll(std::vector<std::unique_ptr<PendingTransfer>> parts) : parts_(std::move(parts)) {}

  // For all of them; the first error.
  absl::Status Wait() override;
  // From the first start to the last end.
  std::optional<HostSpan> span() const override;

 private:
  const std::vector<std::unique_ptr<PendingTransfer>> parts_;
};

}  // namespace penstock::worker
