#include "common/process/freed_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "common/process/sanitized.h"

namespace penstock {
namespace {

#ifdef __GLIBC__

constexpr size_t kBlockBytes = size_t{16} << 10;
constexpr size_t kBlocks = 2 * kFreedMemoryStep / kBlockBytes;

using Block = std::unique_ptr<char[]>;

// On a thread, which has an arena of its own: all of it in use, then holes between blocks that stay. Returns
// the blocks that stay.
std::vector<Block> LeaveHoles() {
  std::vector<Block> staying;
  std::thread([&] {
    std::vector<Block> passing;
    for (size_t i = 0; i < kBlocks; ++i) {
      passing.push_back(std::make_unique<char[]>(kBlockBytes));
      if (i % 64 == 0) staying.push_back(std::make_unique<char[]>(kBlockBytes));
    }
  }).join();
  return staying;
}

class FreedMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers have an allocator of their own, which gives nothing back";
  }
};

TEST_F(FreedMemoryTest, WhatWasFreedBetweenBlocksThatStayIsGivenBack) {
  FreedMemory freed;
  freed.GiveBack();
  const size_t before = ResidentBytes();
  const std::vector<Block> staying = LeaveHoles();
  const size_t with_holes = ResidentBytes();
  EXPECT_GT(with_holes, before + kFreedMemoryStep);
  freed.GiveBack();
  EXPECT_LT(ResidentBytes(), before + kFreedMemoryStep / 2);
}

// Memory that is in use when it looks does not hide what is freed later.
TEST_F(FreedMemoryTest, MemoryThatIsInUseCountsForNothing) {
  FreedMemory freed;
  freed.GiveBack();
  const size_t before = ResidentBytes();
  std::vector<Block> staying;
  std::thread([&] {
    std::vector<Block> passing;
    for (size_t i = 0; i < kBlocks; ++i) {
      passing.push_back(std::make_unique<char[]>(kBlockBytes));
      if (i % 64 == 0) staying.push_back(std::make_unique<char[]>(kBlockBytes));
    }
    freed.GiveBack();
    EXPECT_GT(ResidentBytes(), before + kFreedMemoryStep);
  }).join();
  freed.GiveBack();
  EXPECT_LT(ResidentBytes(), before + kFreedMemoryStep / 2);
}

TEST_F(FreedMemoryTest, HolesThatWereThereBeforeAreLeftAlone) {
  const std::vector<Block> staying = LeaveHoles();
  FreedMemory freed;
  freed.GiveBack();
  const size_t with_holes = ResidentBytes();
  freed.GiveBack();
  EXPECT_GT(ResidentBytes(), with_holes - kFreedMemoryStep / 2);
}

#endif

TEST(ResidentBytes, TheProcessHasSomeMemory) { EXPECT_GT(ResidentBytes(), size_t{1} << 20); }

}  // namespace
}  // namespace penstock
