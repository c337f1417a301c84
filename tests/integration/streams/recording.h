// What the executor asked of a device in an iteration, in that order. Neither protobuf nor LibTorch.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/device/iteration_marks.h"
#include "worker/program/program.h"

namespace penstock::worker {

enum class Call : uint8_t {
  // A mark was set on the stream.
  kSet,
  // The stream was made to wait for a mark.
  kWaitFor,
  // The stream uses the memory of a tensor of another one.
  kUse,
  // A transfer or reduction was started from the stream.
  kStart,
  // A pass exchanged with its stage group.
  kExchange,
  // The stream was made to wait for what was started.
  kJoin,
  // The host waited for all streams.
  kHostWait,
  // The host read a tensor.
  kHostRead,
};

struct Recorded {
  Call call = Call::kSet;
  // The one that was entered.
  Stream stream = Stream::kCompute;
  Mark mark = 0;

  bool operator==(const Recorded&) const = default;
};

using Recording = std::vector<Recorded>;

}  // namespace penstock::worker
