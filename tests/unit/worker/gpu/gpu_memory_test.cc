// How many bytes tensors take on a GPU.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/gpu/gpu_testing.h"
#include "worker/memory/tensor_memory.h"

namespace penstock::worker {
namespace {

constexpr int64_t kBytes = int64_t{32} << 20;

at::Tensor TensorOf(int64_t count) { return at::empty({count}, at::TensorOptions(Gpu(0)).dtype(at::kByte)); }

// The allocator may give a block that is a little larger.
void ExpectAbout(int64_t bytes, int64_t expected) {
  EXPECT_GE(bytes, expected);
  EXPECT_LT(bytes, expected + kBytes / 4);
}

class GpuMemory : public testing::Test {
 protected:
  void SetUp() override { PENSTOCK_NEEDS_GPUS(1); }
};

TEST_F(GpuMemory, TensorsAreCountedWhileTheyExist) {
  const at::Tensor first = TensorOf(1);
  const int64_t before = TensorBytes(Gpu(0));
  {
    const at::Tensor tensor = TensorOf(kBytes);
    ExpectAbout(TensorBytes(Gpu(0)), before + kBytes);
  }
  EXPECT_EQ(TensorBytes(Gpu(0)), before);
}

TEST_F(GpuMemory, ThePeakIsThatSinceTheLastReset) {
  const at::Tensor first = TensorOf(1);
  const int64_t before = TensorBytes(Gpu(0));
  { const at::Tensor tensor = TensorOf(2 * kBytes); }
  EXPECT_GE(PeakTensorBytes(Gpu(0)), before + 2 * kBytes);
  ResetPeakTensorBytes(Gpu(0));
  EXPECT_EQ(PeakTensorBytes(Gpu(0)), before);
  { const at::Tensor tensor = TensorOf(kBytes); }
  ExpectAbout(PeakTensorBytes(Gpu(0)), before + kBytes);
}

TEST_F(GpuMemory, EachGpuIsCountedByItself) {
  PENSTOCK_NEEDS_GPUS(2);
  const at::Tensor on_first = TensorOf(1);
  const at::Tensor on_second = at::empty({1}, at::TensorOptions(Gpu(1)).dtype(at::kByte));
  const int64_t before = TensorBytes(Gpu(1));
  const at::Tensor tensor = TensorOf(kBytes);
  EXPECT_EQ(TensorBytes(Gpu(1)), before);
}

}  // namespace
}  // namespace penstock::worker
