#include "planner/cli/up/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(MachineTest, GpusAreOfTheModelsThatTheDriverNames) {
  const TemporaryFolder folder;
  folder.Write("0000:01:00.0/information", "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\n");
  folder.Write("0000:02:00.0/information", "Model: \t\t NVIDIA H100 80GB HBM3\n");
  folder.Write("0000:03:00.0/information", "Model: \t\t NVIDIA A10\n");
  EXPECT_THAT(GpuModels(folder.path()), ElementsAre("NVIDIA A10", "NVIDIA H100 80GB HBM3"));
}

TEST(MachineTest, WithoutADriverThereAreNoGpus) {
  EXPECT_THAT(GpuModels(TemporaryFolder().Path("absent")), IsEmpty());
}

}  // namespace
}  // namespace penstock::cli
