#include "worker/comm/transfer.h"

#include <optional>
#include <utility>

#include "common/status/status_macros.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// An abort explains a failure better than what the transport has to say of it; every other failure is the
// peer's.
absl::Status Judge(const absl::Status& outcome, const Cancellation& cancellation) {
  PENSTOCK_RETURN_IF_ERROR(cancellation.status());
  return outcome.ok() ? outcome : absl::UnavailableError(std::string(outcome.message()));
}

class Transfer : public PendingTransfer {
 public:
  Transfer(std::string description, at::Tensor tensor, std::shared_ptr<Cancellation> cancellation,
           std::chrono::milliseconds timeout, Cancellation::Work work)
      : description_(std::move(description)),
        tensor_(std::move(tensor)),
        cancellation_(std::move(cancellation)),
        timeout_(timeout),
        work_(std::move(work)) {
    cancellation_->Add(work_);
  }

  ~Transfer() override { cancellation_->Remove(work_); }

  absl::Status Wait() override {
    if (!result_) result_ = Judge(RunTorch(description_, [&] { work_->wait(timeout_); }), *cancellation_);
    return *result_;
  }

 private:
  const std::string description_;
  const at::Tensor tensor_;
  const std::shared_ptr<Cancellation> cancellation_;
  const std::chrono::milliseconds timeout_;
  const Cancellation::Work work_;
  std::optional<absl::Status> result_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PendingTransfer>> StartTransfer(
    const std::string& description, const at::Tensor& tensor,
    const std::shared_ptr<Cancellation>& cancellation, std::chrono::milliseconds timeout,
    const std::function<Cancellation::Work()>& start) {
  PENSTOCK_RETURN_IF_ERROR(cancellation->status());
  absl::StatusOr<Cancellation::Work> work = CallTorch(description, start);
  if (!work.ok()) return Judge(work.status(), *cancellation);
  return std::make_unique<Transfer>(description, tensor, cancellation, timeout, *std::move(work));
}

}  // namespace penstock::worker
