// A forward pass of which parameters come as late as they may: each when the pass asks for it.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "worker/model/stage.h"

namespace penstock::worker {

// Has the stage's own parameters be no numbers until they are asked for: whatever is read before makes the
// output none, too. Those that stages share are there, and so are all where the stage has adapters.
class LateParameters {
 public:
  explicit LateParameters(const Stage& stage)
      : adapts_(!stage.flat_parameters().frozen.empty()),
        own_(stage.flat_parameters().values.narrow(0, 0, adapts_ ? 0 : EndOfOwn(stage))),
        values_(own_.clone()) {
    own_.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  ~LateParameters() { Bring(own_.numel()); }
  LateParameters(const LateParameters&) = delete;
  LateParameters& operator=(const LateParameters&) = delete;

  ParametersNeeded Listener() {
    return [this](int64_t end) {
      asked_.push_back(std::min(end, own_.numel()));
      Bring(asked_.back());
    };
  }

  // After the pass. `layers`: of the stage.
  void Check(size_t layers) const {
    if (adapts_) return;
    ASSERT_GE(asked_.size(), std::max<size_t>(1, layers)) << "once a layer";
    EXPECT_TRUE(std::ranges::is_sorted(asked_));
    EXPECT_EQ(asked_.back(), own_.numel());
    std::vector<int64_t> ends = asked_;
    ends.erase(std::ranges::unique(ends).begin(), ends.end());
    EXPECT_EQ(ends.size(), std::max<size_t>(1, layers))
        << "no layer's before those of the layer below are used";
  }

 private:
  static int64_t EndOfOwn(const Stage& stage) {
    const FlatParameters& flat = stage.flat_parameters();
    return flat.spans[flat.buckets - 1].end;
  }

  void Bring(int64_t end) { own_.narrow(0, 0, end).copy_(values_.narrow(0, 0, end)); }

  const bool adapts_;
  at::Tensor own_;
  const at::Tensor values_;
  std::vector<int64_t> asked_;
};

}  // namespace penstock::worker
