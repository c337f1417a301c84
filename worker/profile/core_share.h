// What others took of the measuring thread's core.
#pragma once

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "worker/profile/measured_device.h"

namespace penstock::worker {

// How much longer a thread takes that shares its core than it computes, since this object was made. A pass
// alone does not tell: a short one mostly runs in one piece, and now and then the others' turns are in it.
class CoreShare {
 public:
  double Factor() const {
    return (SteadyNanoseconds() - wall_) / std::max(1.0, ThreadNanoseconds() - thread_);
  }

 private:
  double wall_ = SteadyNanoseconds();
  double thread_ = ThreadNanoseconds();
};

// What kept a thread that has a core of its own from it, over the shapes that it measured.
class Interference {
 public:
  // A shape that took so many times as long as its thread computed is measured again, once. The thread's own
  // time is what counts, which is little wrong below that.
  static constexpr double kWorthRepeating = 1.5;

  void Add(double factor) {
    ++shapes_;
    disturbed_ += factor > kWorthRepeating ? 1 : 0;
    worst_ = std::max(worst_, factor);
  }

  void Add(const Interference& other) {
    shapes_ += other.shapes_;
    disturbed_ += other.disturbed_;
    worst_ = std::max(worst_, other.worst_);
  }

  // Of the shape that was kept longest from its core; 1: none was.
  double worst() const { return worst_; }

  // For people; empty where at most a quarter of the shapes were disturbed.
  std::string Describe() const {
    if (4 * disturbed_ <= shapes_) return "";
    return absl::StrFormat(
        "other processes kept the measuring thread from its core in %d of %d shapes, measured again each; it "
        "had %.0f %% of the core in the worst",
        disturbed_, shapes_, 100 / worst_);
  }

 private:
  int shapes_ = 0;
  int disturbed_ = 0;
  double worst_ = 1;
};

}  // namespace penstock::worker
