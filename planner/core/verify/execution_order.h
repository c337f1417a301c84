// Which instructions of a rank are certain to have ended before which others start: through deps and the
// order within each stream, and through nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "penstock/v1/plan.pb.h"

namespace penstock::core::verify {

class ExecutionOrder {
 public:
  // Deps on later instructions, or outside the program, are ignored.
  explicit ExecutionOrder(const v1::Program& program);

  // Whether `first` has ended when `second` starts.
  bool IsBefore(const v1::Instruction& first, const v1::Instruction& second) const;
  // Id of the last instruction of a stream that has ended when this one starts, or -1.
  int64_t LastBefore(const v1::Instruction& instruction, v1::Stream stream) const;

 private:
  // STREAM_COMPUTE to STREAM_COLLECTIVE, and one place for anything else.
  static constexpr int kStreams = 5;
  using Clock = std::array<int64_t, kStreams>;

  // For each instruction: the last instruction of each stream that has ended when it starts, or -1.
  std::vector<Clock> clocks_;
};

}  // namespace penstock::core::verify
