#include "common/tracing/trace_parent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"

namespace penstock {
namespace {

TEST(TraceParentTest, NamesTheSpanOfTheCaller) {
  const auto link = ParseTraceParent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "vendor=x");
  ASSERT_TRUE(link.has_value());
  EXPECT_EQ(absl::BytesToHexString(link->trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(absl::BytesToHexString(link->span_id), "00f067aa0ba902b7");
  EXPECT_EQ(link->flags, 1);
  EXPECT_EQ(link->state, "vendor=x");
}

TEST(TraceParentTest, OfALaterVersionMayHaveMore) {
  const std::string fields = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  EXPECT_TRUE(ParseTraceParent("01-" + fields + "-more", "").has_value());
  EXPECT_FALSE(ParseTraceParent("00-" + fields + "-more", "").has_value());
  EXPECT_FALSE(ParseTraceParent("ff-" + fields, "").has_value());
}

TEST(TraceParentTest, WhatIsNoneIsIgnored) {
  for (const char* header : {"", "-", "---", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
                             "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                             "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                             "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                             "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b-01",
                             "0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}) {
    EXPECT_FALSE(ParseTraceParent(header, "").has_value()) << header;
  }
}

TEST(TraceParentTest, AStateThatNobodyHasToPassOnIsLeftOut) {
  const auto link =
      ParseTraceParent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", std::string(513, 'x'));
  ASSERT_TRUE(link.has_value());
  EXPECT_EQ(link->state, "");
}

}  // namespace
}  // namespace penstock
