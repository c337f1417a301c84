#include "planner/cli/up/device_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace penstock::cli {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

DeviceList Devices(const std::string& text) {
  const absl::StatusOr<DeviceList> devices = ParseDevices(text);
  EXPECT_TRUE(devices.ok()) << text << ": " << devices.status();
  return devices.value_or(DeviceList());
}

TEST(DeviceListTest, WordsAreDevices) {
  EXPECT_EQ(Devices("cpu").kind, UpDevice::kCpu);
  EXPECT_EQ(Devices("Simulated").kind, UpDevice::kSimulated);
  EXPECT_EQ(Devices("cuda").kind, UpDevice::kCuda);
  EXPECT_THAT(Devices("cuda").gpus, IsEmpty());
}

TEST(DeviceListTest, GpusAreListedAloneAndAsRanges) {
  EXPECT_THAT(Devices("cuda:0").gpus, ElementsAre(0));
  EXPECT_THAT(Devices("cuda:0..3").gpus, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Devices("cuda:5,0,2").gpus, ElementsAre(5, 0, 2));
  EXPECT_THAT(Devices("CUDA:6..7,0").gpus, ElementsAre(6, 7, 0));
  EXPECT_EQ(Devices("cuda:0..3").name, "cuda:0..3");
}

TEST(DeviceListTest, WhatIsNoListIsRefusedWithWhatToUse) {
  for (const char* text : {"", "quantum", "cuda:", "cuda:a", "cuda:0,", "cuda:-1", "cuda:0...3", "cuda:0..",
                           "cuda:0..1..2", "cuda0", "cpu:0", "cuda:4294967296"}) {
    const absl::Status status = ParseDevices(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("use cpu, simulated, cuda, cuda:0..3")) << text;
  }
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"cuda:0,2,0", "GPU 0 is there twice"},
      {"cuda:0..3,2", "GPU 2 is there twice"},
      {"cuda:3..1", "use cuda:1..3"},
      {"cuda:0..4000000000", "there is no GPU 4000000000"}};
  for (const auto& [text, says] : wrong)
    EXPECT_THAT(std::string(ParseDevices(text).status().message()), HasSubstr(says));
}

TEST(DeviceListTest, EachRankHasAGpuOfItsOwn) {
  EXPECT_THAT(*GpuOfEachRank(Devices("cuda"), 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(*GpuOfEachRank(Devices("cuda:4,2"), 2), ElementsAre(4, 2));
}

TEST(DeviceListTest, AsManyGpusAsWorkersAreNamed) {
  const absl::Status status = GpuOfEachRank(Devices("cuda:0..2"), 4).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--device cuda:0..2"), HasSubstr("3 GPUs for 4 workers")));
}

TEST(DeviceListTest, GpusAreNumberedAnewOnEachHost) {
  const std::vector<std::string> hosts = {"a", "a", "b", "b"};
  EXPECT_THAT(*GpuOfEachRank(Devices("cuda"), hosts), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(*GpuOfEachRank(Devices("cuda:2,3"), hosts), ElementsAre(2, 3, 2, 3));
  EXPECT_THAT(*GpuOfEachRank(Devices("cuda"), std::vector<std::string>{"a", "a", "b"}), ElementsAre(0, 1, 0));
}

TEST(DeviceListTest, AHostThatRunsOtherThanTheNamedGpusIsNamed) {
  const absl::Status status =
      GpuOfEachRank(Devices("cuda:0..1"), std::vector<std::string>{"a", "a", "b"}).status();
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("--device cuda:0..1: 2 GPUs of each host"),
                                                   HasSubstr("'b' runs 1 workers"), HasSubstr("slots=2")));
}

}  // namespace
}  // namespace penstock::cli
