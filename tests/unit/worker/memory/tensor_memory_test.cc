#include "worker/memory/tensor_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

namespace penstock::worker {
namespace {

class TensorMemoryTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { CountCpuTensors(); }

  const int64_t before_ = TensorBytes(at::kCPU);
};

TEST_F(TensorMemoryTest, CountsWhatExistsByTheByte) {
  at::Tensor bytes = at::zeros({3}, at::kByte);
  EXPECT_EQ(TensorBytes(at::kCPU) - before_, 3);
  {
    const at::Tensor doubles = at::ones({10, 7}, at::kDouble);
    const at::Tensor view = doubles.narrow(0, 2, 3).t();
    EXPECT_EQ(TensorBytes(at::kCPU) - before_, 3 + 560) << "a view takes nothing";
  }
  EXPECT_EQ(TensorBytes(at::kCPU) - before_, 3);
  bytes.reset();
  EXPECT_EQ(TensorBytes(at::kCPU), before_);
}

TEST_F(TensorMemoryTest, RemembersThePeakSinceTheReset) {
  at::zeros({1000}, at::kDouble);
  EXPECT_GE(PeakTensorBytes(at::kCPU) - before_, 8000);
  ResetPeakTensorBytes(at::kCPU);
  EXPECT_EQ(PeakTensorBytes(at::kCPU), before_);
  const at::Tensor kept = at::zeros({100}, at::kDouble);
  at::empty({200}, at::kDouble);
  EXPECT_EQ(PeakTensorBytes(at::kCPU) - before_, 2400);
}

TEST_F(TensorMemoryTest, CountsTensorsThatEndOnAnotherThread) {
  at::Tensor tensor = at::zeros({1000}, at::kFloat);
  std::thread([held = std::move(tensor)]() mutable { held.reset(); }).join();
  EXPECT_EQ(TensorBytes(at::kCPU), before_);
}

TEST_F(TensorMemoryTest, KeepsTensorsAlignedAndTheirValues) {
  for (const int64_t size : {0, 1, 5, 1000}) {
    const at::Tensor tensor = at::arange(size, at::kDouble);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 64, 0u);
    EXPECT_EQ(tensor.sum().item<double>(), static_cast<double>(size * (size - 1)) / 2);
  }
}

}  // namespace
}  // namespace penstock::worker
