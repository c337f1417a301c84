// What a stage says of its gradients while a pass makes them, held against what they are in the end.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "worker/model/stage.h"

namespace penstock::worker {

// Keeps what a stage says of its gradients while a pass runs, and expects that it was true.
class ReadyGradients {
 public:
  explicit ReadyGradients(const Stage& stage) : stage_(stage) {}

  GradientsReady Listener() {
    return [this](int64_t begin) { said_.emplace_back(begin, From(begin).clone()); };
  }

  // After the pass. `layers`: of the stage.
  void Check(size_t layers) const {
    EXPECT_EQ(said_.size(), layers) << "once a layer";
    for (const auto& [begin, gradients] : said_) {
      EXPECT_TRUE(at::equal(gradients, From(begin))) << "gradients from element " << begin << " on changed";
    }
    EXPECT_TRUE(std::ranges::is_sorted(said_, std::greater(), [](const auto& said) { return said.first; }));
  }

 private:
  at::Tensor From(int64_t begin) const {
    const FlatParameters& flat = stage_.flat_parameters();
    return flat.gradients.narrow(0, begin, flat.spans[flat.buckets - 1].end - begin);
  }

  const Stage& stage_;
  std::vector<std::pair<int64_t, at::Tensor>> said_;
};

}  // namespace penstock::worker
