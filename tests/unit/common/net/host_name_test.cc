#include "common/net/host_name.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(HostNameTest, EveryMachineHasOne) { EXPECT_FALSE(HostName().empty()); }

}  // namespace
}  // namespace penstock
