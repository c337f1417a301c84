#include "common/grpc/status_conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "penstock/client/retry_iteration.h"

namespace penstock {
namespace {

TEST(StatusConversionTest, EveryCodeAndMessageComesBack) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
    EXPECT_EQ(GrpcCodeName(static_cast<grpc::StatusCode>(code)), absl::StatusCodeToString(status.code()));
  }
}

TEST(StatusConversionTest, OkStaysOk) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
  EXPECT_STREQ(GrpcCodeName(grpc::StatusCode::OK), "OK");
}

TEST(StatusConversionTest, ACallThatTheServerCancelledMayBeTriedAgain) {
  EXPECT_TRUE(FromStatusOfCall(grpc::Status::OK).ok());
  EXPECT_EQ(FromStatusOfCall({grpc::StatusCode::CANCELLED, ""}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(FromStatusOfCall({grpc::StatusCode::ABORTED, "why"}), absl::AbortedError("why"));
}

TEST(StatusConversionTest, ACodeFromTheFutureIsUnknown) {
  // More than the enum names, and still a value that it can hold.
  const grpc::Status strange(static_cast<grpc::StatusCode>(20), "why");
  EXPECT_EQ(FromGrpcStatus(strange), absl::UnknownError("why"));
  EXPECT_STREQ(GrpcCodeName(strange.error_code()), "UNKNOWN");
}

TEST(RetryIterationTest, IsCarriedByAStatus) {
  EXPECT_THAT(RetryIteration(WithRetryIteration(absl::ResourceExhaustedError("full"), 17)),
              testing::Optional(17));
  EXPECT_EQ(RetryIteration(absl::ResourceExhaustedError("full")), std::nullopt);
  EXPECT_EQ(RetryIteration(absl::OkStatus()), std::nullopt);
}

}  // namespace
}  // namespace penstock
