// NCCL with one rank: what a machine with one GPU can show.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/comm/communicator.h"

namespace penstock::worker {
namespace {

struct Alone {
  std::unique_ptr<StoreServer> store;
  std::unique_ptr<Communicator> communicator;
};

Alone JoinAlone() {
  Alone alone;
  auto store = StoreServer::Start("127.0.0.1");
  EXPECT_TRUE(store.ok()) << store.status();
  if (!store.ok()) return alone;
  alone.store = *std::move(store);
  CommunicatorOptions options;
  options.rendezvous_address = absl::StrCat("127.0.0.1:", alone.store->port());
  options.epoch = 1;
  options.groups = {{0}};
  options.device = at::Device(at::kCUDA, 0);
  auto communicator = MakeNcclCommunicator(options);
  EXPECT_TRUE(communicator.ok()) << communicator.status();
  if (communicator.ok()) alone.communicator = *std::move(communicator);
  return alone;
}

TEST(NcclCommunicator, AGroupOfOneKeepsItsTensors) {
  const Alone alone = JoinAlone();
  ASSERT_NE(alone.communicator, nullptr);
  std::vector<at::Tensor> tensors = {at::full({5}, 3.0, at::Device(at::kCUDA, 0))};
  EXPECT_TRUE(alone.communicator->AllReduceSum(tensors, {0}).ok());
  EXPECT_EQ(tensors[0].sum().item<double>(), 15.0);
}

TEST(NcclCommunicator, AfterAbortCallsAreCancelledWithTheReason) {
  const Alone alone = JoinAlone();
  ASSERT_NE(alone.communicator, nullptr);
  alone.communicator->Abort("the test says so");
  std::vector<at::Tensor> tensors = {at::full({5}, 3.0, at::Device(at::kCUDA, 0))};
  const absl::Status status = alone.communicator->AllReduceSum(tensors, {0});
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_NE(std::string(status.message()).find("the test says so"), std::string::npos);
}

}  // namespace
}  // namespace penstock::worker
