// Ports and addresses to listen on.
#include "common/net/listening.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/support/local_listener.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using absl::StatusCode;

TEST(UnusedPortTest, CanBeListenedOn) {
  const absl::StatusOr<int> port = UnusedPort();
  ASSERT_THAT(port, IsOk());
  ListenLocally(*port);
}

TEST(UnusedPortTest, IsNoneThatTheKernelGivesToOthers) {
  int first = 0;
  int last = 0;
  if (!(std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last) || first < 20000)
    GTEST_SKIP() << "the kernel gives almost any";
  for (int i = 0; i < 20; ++i) EXPECT_LT(UnusedPort().value(), first);
}

TEST(UnusedPortTest, IsNoneThatSomebodyListensOn) {
  const int port = UnusedPort().value();
  const FileDescriptor other = ListenLocally(port);
  EXPECT_THAT(UnusedPort({.first = port, .last = port}), Fails(StatusCode::kResourceExhausted, "no unused"));
}

TEST(UnusedPortTest, TakesThePlaceOfAnyPortAndOfNoOther) {
  EXPECT_THAT(WithUnusedPort("[::1]:0").value(), testing::MatchesRegex("\\[::1\\]:[1-9][0-9]*"));
  for (const char* address : {"127.0.0.1:8080", "127.0.0.1", ""}) {
    EXPECT_EQ(WithUnusedPort(address).value(), address);
  }
}

TEST(ListenErrorTest, APortInUseMayBeFreeLater) {
  const FileDescriptor other = ListenLocally();
  for (const char* host : {"127.0.0.1", "localhost", "0.0.0.0", ""}) {
    const std::string address = absl::StrCat(host, ":", PortOf(other));
    EXPECT_THAT(ListenError(address), Fails(StatusCode::kUnavailable, absl::StrCat("'", address, "'")));
    EXPECT_THAT(ListenError(address), Fails(StatusCode::kUnavailable, "in use"));
  }
}

TEST(ListenErrorTest, APortThatIsFreeMeanwhileMayBeTriedAgain) {
  const std::string address = WithUnusedPort("127.0.0.1:0").value();
  EXPECT_THAT(ListenError(address), Fails(StatusCode::kUnavailable, "a moment later"));
}

TEST(ListenErrorTest, AnAddressOfNobodyHereStaysWrong) {
  for (const char* address :
       {"203.0.113.1:8080", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", ""})
    EXPECT_THAT(ListenError(address), Fails(StatusCode::kInvalidArgument, "HOST:PORT")) << address;
}

}  // namespace
}  // namespace penstock
