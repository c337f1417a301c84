#include "worker/device/accelerator_streams.h"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cmath>
#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

constexpr double kNanosecondsPerMillisecond = 1e6;
// Transfers and reductions are small kernels that others wait for.
constexpr int kHighPriority = -1;

class AcceleratorStreams : public DeviceStreams {
 public:
  explicit AcceleratorStreams(at::Device place) : place_(place), guard_(place.type()) {
    guard_.setDevice(place_);
    streams_.push_back(guard_.getDefaultStream(place_));
    while (streams_.size() < kStreamCount) streams_.push_back(guard_.getNewStream(place_, kHighPriority));
  }

  absl::Status Reset(size_t count) override {
    return RunTorch("the marks of an iteration", [&] {
      guard_.setDevice(place_);
      while (events_.size() < count) events_.emplace_back(place_.type(), c10::EventFlag::BACKEND_DEFAULT);
    });
  }

  absl::Status Enter(Stream stream) override {
    return RunTorch("entering a stream", [&] { guard_.exchangeStream(Of(stream)); });
  }

  absl::Status Set(Mark mark) override {
    return RunTorch("a mark on a stream", [&] { events_[mark].record(guard_.getStream(place_)); });
  }

  absl::Status WaitFor(Mark mark) override {
    return RunTorch("waiting for a mark", [&] { events_[mark].block(guard_.getStream(place_)); });
  }

  absl::Status Use(const at::Tensor& tensor) override {
    return RunTorch("using a tensor of another stream", [&] {
      if (tensor.defined() && tensor.has_storage()) tensor.record_stream(guard_.getStream(place_));
    });
  }

  absl::Status Synchronize() override {
    return RunTorch("the iteration", [&] { guard_.synchronizeDevice(place_.index()); });
  }

  absl::StatusOr<int64_t> Between(Mark from, Mark to) override {
    return CallTorch("the time between two marks", [&] {
      return std::llround(events_[from].elapsedTime(events_[to]) * kNanosecondsPerMillisecond);
    });
  }

 private:
  const c10::Stream& Of(Stream stream) const { return streams_[static_cast<size_t>(stream)]; }

  const at::Device place_;
  const c10::impl::VirtualGuardImpl guard_;
  // By Stream; computing first.
  std::vector<c10::Stream> streams_;
  // By mark; kept from one iteration to the next.
  std::vector<c10::Event> events_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceStreams>> MakeAcceleratorStreams(at::Device place) {
  return CallTorch(place.str(), [&]() -> std::unique_ptr<DeviceStreams> {
    return std::make_unique<AcceleratorStreams>(place);
  });
}

}  // namespace penstock::worker
