#include "worker/profile/provenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/held_out/disturbance.h"
#include "common/held_out/measured_contexts.h"
#include "tests/support/temporary_folder.h"

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Provenance, NamesWhatTheFiguresCameFrom) {
  const std::string comment = CommentOf({.threads = 2,
                                         .libtorch = "2.11.0",
                                         .measured_at = absl::UnixEpoch() + absl::Hours(24),
                                         .spread = 0.0123},
                                        "Some CPU");
  EXPECT_THAT(comment, AllOf(HasSubstr("on 1970-01-02 00:00 UTC with 2 threads of Some CPU, with no other "
                                       "worker beside it, LibTorch 2.11.0: medians"),
                             HasSubstr("differ by 1.2 %")));
  EXPECT_EQ(DisturbanceOf(comment), "");
}

TEST(Provenance, SaysHowManyMeasuredSideBySideAndWhatCompiled) {
  const std::string comment =
      CommentOf({.workers = 4, .compiler = "g++ 12.2.0", .libtorch = "2.11.0"}, "Some CPU");
  EXPECT_THAT(comment, HasSubstr("of Some CPU, one of 4 workers side by side, LibTorch 2.11.0, g++ 12.2.0:"));
}

TEST(Provenance, SaysWhereBytesAreNotThoseThatAreCounted) {
  const std::string comment =
      CommentOf({.spread = 0.01, .memory_differences = "layer: peak 0.85 times what is counted"}, "Some CPU");
  EXPECT_THAT(comment,
              HasSubstr("differ by 1.0 %; bytes by the allocator, layer: peak 0.85 times what is counted"));
}

TEST(Provenance, SaysOfWhichContextRanksSharesWereMeasured) {
  const std::string comment = CommentOf({.contexts = {2, 4}, .disturbance = "a build"}, "Some CPU");
  EXPECT_THAT(MeasuredContextsOf(comment), ElementsAre(2, 4));
  EXPECT_EQ(DisturbanceOf(comment), "a build");
}

TEST(Provenance, SaysWhatDisturbed) {
  EXPECT_EQ(DisturbanceOf(CommentOf({.disturbance = "a build"}, "Some CPU")), "a build");
}

TEST(Provenance, HardwareIsTheProcessorsOrTheGpus) {
  const TemporaryFolder proc;
  proc.Write("cpuinfo", "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n");
  proc.Write("driver/nvidia/gpus/0/information", "Model: \t\t NVIDIA H100\nIRQ: 3\n");
  proc.Write("driver/nvidia/version", "NVRM version: NVIDIA UNIX 580.1\n");
  EXPECT_EQ(HardwareOf("cpu", proc.path()), "Some CPU @ 2 GHz");
  EXPECT_EQ(HardwareOf("cuda:1", proc.path()), "NVIDIA H100 (NVIDIA UNIX 580.1)");
  EXPECT_EQ(HardwareOf("cpu", proc.Path("nowhere")), "an unknown processor");
  EXPECT_EQ(HardwareOf("cuda:0", proc.Path("nowhere")), "an unknown GPU");
}

}  // namespace
}  // namespace penstock::worker
