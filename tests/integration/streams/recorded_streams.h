// Streams that do nothing but write down what is asked of them.
#pragma once

#include "tests/integration/streams/recording.h"
#include "worker/device/device_streams.h"

namespace penstock::worker {

class RecordedStreams : public DeviceStreams {
 public:
  // `recording` must outlive the streams.
  explicit RecordedStreams(Recording* recording) : recording_(*recording) {}

  absl::Status Reset(size_t count) override;
  absl::Status Enter(Stream stream) override;
  absl::Status Set(Mark mark) override;
  absl::Status WaitFor(Mark mark) override;
  absl::Status Use(const at::Tensor& tensor) override;
  absl::Status Synchronize() override;
  // A nanosecond from each mark that was set to the next.
  absl::StatusOr<int64_t> Between(Mark from, Mark to) override;

  void Record(Call call, Mark mark = 0) { recording_.push_back({call, entered_, mark}); }

 private:
  absl::Status CheckMark(Mark mark) const;

  Recording& recording_;
  Stream entered_ = Stream::kCompute;
  // By mark: its place among those that were set, from 1; 0: it was not.
  std::vector<int64_t> set_;
  int64_t settings_ = 0;
};

}  // namespace penstock::worker
