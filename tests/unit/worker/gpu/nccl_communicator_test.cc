// NCCL with one rank, whose group is joined for real: what a machine with one GPU can show.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/unit/worker/gpu/gpu_testing.h"
#include "tests/unit/worker/gpu/nccl_ranks.h"
#include "worker/comm/communicator.h"

namespace penstock::worker {
namespace {

class NcclAlone : public testing::Test {
 protected:
  void SetUp() override {
    PENSTOCK_NEEDS_GPUS(1);
    rank_ = JoinAlone();
    ASSERT_NE(rank_.communicator, nullptr);
  }
  // 0, 1, 2, ...
  static at::Tensor Numbers(int64_t count) {
    return at::arange(count, at::TensorOptions(Gpu(0)).dtype(at::kFloat));
  }

  Communicator& communicator() { return *rank_.communicator; }

 private:
  NcclRank rank_;
};

TEST_F(NcclAlone, AnAllReduceOverOneRankKeepsItsTensors) {
  std::vector<at::Tensor> tensors = {Numbers(5), Numbers(1'000'003)};
  ASSERT_TRUE(communicator().AllReduceSum(tensors, {0}).ok());
  EXPECT_TRUE(tensors[0].cpu().equal(Numbers(5).cpu()));
  EXPECT_TRUE(tensors[1].cpu().equal(Numbers(1'000'003).cpu()));
}

TEST_F(NcclAlone, AStartedAllReduceEndsWhenItIsWaitedFor) {
  const at::Tensor tensor = Numbers(4096).to(at::kBFloat16);
  const at::Tensor before = tensor.cpu();
  auto reduction = communicator().StartAllReduceSum({tensor}, {0});
  ASSERT_TRUE(reduction.ok()) << reduction.status();
  ASSERT_TRUE((*reduction)->Wait().ok());
  EXPECT_TRUE(tensor.cpu().equal(before));
}

TEST_F(NcclAlone, AReduceScatterAndAnAllGatherOverOneRankKeepTheirTensors) {
  const at::Tensor tensor = Numbers(1001);
  auto reduction = communicator().StartReduceScatterSum({tensor}, {0});
  ASSERT_TRUE(reduction.ok()) << reduction.status();
  ASSERT_TRUE((*reduction)->Wait().ok());
  EXPECT_TRUE(tensor.cpu().equal(Numbers(1001).cpu()));
  ASSERT_TRUE(communicator().AllGather({tensor}, {0}).ok());
  EXPECT_TRUE(tensor.cpu().equal(Numbers(1001).cpu()));
}

TEST_F(NcclAlone, AfterAbortCallsAreCancelledWithTheReason) {
  std::vector<at::Tensor> tensors = {Numbers(5)};
  ASSERT_TRUE(communicator().AllReduceSum(tensors, {0}).ok()) << "so that there is something to abort";
  communicator().Abort("the test says so");
  const absl::Status status = communicator().AllReduceSum(tensors, {0});
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_NE(std::string(status.message()).find("the test says so"), std::string::npos);
}

}  // namespace
}  // namespace penstock::worker
