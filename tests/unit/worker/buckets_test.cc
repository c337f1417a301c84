#include "worker/comm/buckets.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

using ::testing::ElementsAre;

// Doubles everything and notes the sizes of the buckets.
struct Doubler {
  std::vector<int64_t> sizes;
  absl::Status operator()(at::Tensor flat) {
    EXPECT_EQ(flat.dim(), 1);
    EXPECT_TRUE(flat.is_contiguous());
    sizes.push_back(flat.numel());
    flat.mul_(2);
    return absl::OkStatus();
  }
};

TEST(Buckets, HoldNeighboursOfOneTypeUpToTheirSize) {
  std::vector<at::Tensor> tensors = {at::ones({2}),
                                     at::ones({1, 3}),
                                     at::ones({6}),
                                     at::ones({20}),
                                     at::ones({1, 1}),
                                     at::ones({2}, at::kDouble),
                                     at::ones({}, at::kDouble)};
  Doubler doubler;
  ASSERT_TRUE(ReduceInBuckets(tensors, 8 * sizeof(float), std::ref(doubler)).ok());
  EXPECT_THAT(doubler.sizes, ElementsAre(5, 6, 20, 1, 3));
  for (const at::Tensor& tensor : tensors) EXPECT_TRUE(tensor.equal(at::full_like(tensor, 2)));
}

TEST(Buckets, WriteBackToTensorsThatAreNotContiguous) {
  const at::Tensor whole = at::ones({4, 4});
  std::vector<at::Tensor> tensors = {whole.t().slice(0, 0, 2)};
  Doubler doubler;
  ASSERT_TRUE(ReduceInBuckets(tensors, 1, std::ref(doubler)).ok());
  EXPECT_EQ(whole.sum().item<float>(), 24);
}

TEST(Buckets, StopAtTheFirstError) {
  std::vector<at::Tensor> tensors = {at::ones({4}), at::ones({4})};
  int calls = 0;
  const absl::Status status = ReduceInBuckets(tensors, 1, [&](const at::Tensor&) {
    ++calls;
    return absl::UnavailableError("gone");
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace penstock::worker
