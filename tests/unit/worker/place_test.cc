#include "worker/torch/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

TEST(PlaceOf, IsTheFirstGpuWhereNoneIsNumbered) {
  EXPECT_EQ(*PlaceOf("cpu"), at::Device(at::kCPU));
  EXPECT_EQ(*PlaceOf("cuda"), at::Device(at::kCUDA, 0));
  EXPECT_EQ(*PlaceOf("cuda:3"), at::Device(at::kCUDA, 3));
}

TEST(PlaceOf, NamesTheFlag) {
  const absl::Status status = PlaceOf("gpu:0").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("--device gpu:0"));
}

}  // namespace
}  // namespace penstock::worker
