// What a REDUCE_GRADIENTS takes, and what of it runs beside the last backward pass of its stage
// (execution.md, section 7).
#pragma once

#include <cstdint>
#include <limits>
#include <map>

namespace penstock::core {

// It goes in equal buckets, one after the other, from the uppermost layers of the stage down, as the last
// backward pass makes their gradients: all but the lowest may be there when it ends.
struct ReduceTime {
  // Of a rank without a pass, for which no bucket waits.
  static constexpr int64_t kNoPass = std::numeric_limits<int64_t>::max();

  // Of each bucket.
  int64_t bucket_ns = 0;
  int64_t buckets = 1;
  // How much of an exchange goes on while a rank computes, 0 to 1.
  double overlap = 0;

  int64_t WholeNs() const;
  // What is left behind a last pass of `pass_ns`: the shortest of those of all ranks, or kNoPass where none
  // has one.
  int64_t LeftNs(int64_t pass_ns) const;
  // The shortest that it can be.
  int64_t LeastLeftNs() const;
};

// Goes through the instructions of a rank.
class LastPasses {
 public:
  void AddPass(int stage, int64_t duration_ns) { last_ns_[stage] = duration_ns; }
  // How long the stage's buckets may run beside its last pass: 0 where another REDUCE is to start between
  // that one and this; ReduceTime::kNoPass where the rank has no pass on the stage.
  int64_t TakeReduce(int stage);

 private:
  // By stage.
  std::map<int, int64_t> last_ns_;
};

}  // namespace penstock::core
