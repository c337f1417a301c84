#include "common/grpc/targets.h"

#include <gtest/gtest.h>

#include <string>

namespace penstock {
namespace {

TEST(TargetsTest, OneAddressStaysAsItIs) {
  for (const char* address : {"planner:7070", "10.0.0.5:7070", "[::1]:7070", "dns:///planners:7070"}) {
    EXPECT_EQ(TargetOf(address), address);
  }
  EXPECT_FALSE(NamesSeveral("planner:7070"));
}

TEST(TargetsTest, AListIsOneTarget) {
  EXPECT_EQ(TargetOf("10.0.0.5:7070,10.0.0.6:7071"), "ipv4:10.0.0.5:7070,10.0.0.6:7071");
  EXPECT_EQ(TargetOf(" 10.0.0.5:7070, 10.0.0.5:7070,"), "ipv4:10.0.0.5:7070");
  EXPECT_TRUE(NamesSeveral("a:1,b:2"));
  EXPECT_TRUE(NamesSeveral("dns:///planners:7070"));
}

TEST(TargetsTest, AListOfBothVersionsIsOneOfVersion6) {
  EXPECT_EQ(TargetOf("[fd00::5]:7070,[fd00::6]:7070"), "ipv6:%5Bfd00::5%5D:7070,%5Bfd00::6%5D:7070");
  EXPECT_EQ(TargetOf("10.0.0.5:7070,[fd00::6]:7070"), "ipv6:%5B::ffff:10.0.0.5%5D:7070,%5Bfd00::6%5D:7070");
}

TEST(TargetsTest, WhatIsNoAddressIsNamed) {
  for (const char* good : {"planner:7070", "10.0.0.5:1", "[::1]:65535", "a:1, b:2", "dns:///planners:7070",
                           "unix:/run/planner"}) {
    EXPECT_EQ(WhatIsWrongWithAddresses(good), "") << good;
  }
  for (const char* bad :
       {"planner", ":7070", "planner:", "planner:0", "planner:65536", "planner:x", "::1:7070", "a b:7070"}) {
    EXPECT_EQ(WhatIsWrongWithAddresses(bad),
              "'" + std::string(bad) + "': use HOST:PORT, or several with commas between");
  }
  EXPECT_NE(WhatIsWrongWithAddresses("a:1,b"), "");
  EXPECT_NE(WhatIsWrongWithAddresses(""), "");
}

TEST(TargetsTest, WhatIsNoAddressIsLeftOut) {
  EXPECT_EQ(TargetOf("10.0.0.5:7070,10.0.0.6"), "ipv4:10.0.0.5:7070");
  // gRPC says what is wrong with it.
  EXPECT_EQ(TargetOf("10.0.0.6,"), "dns:///10.0.0.6");
}

}  // namespace
}  // namespace penstock
