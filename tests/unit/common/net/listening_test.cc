// Ports and addresses to listen on.
#include "common/net/listening.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/process/file_descriptor.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using absl::StatusCode;

// Listens on a port of 127.0.0.1 for as long as it lives; 0: any.
class Listener {
 public:
  explicit Listener(int port = 0) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof(address);
    listens_ = bind(socket_.get(), generic, size) == 0 && listen(socket_.get(), 1) == 0 &&
               getsockname(socket_.get(), generic, &size) == 0;
    port_ = ntohs(address.sin_port);
  }

  bool listens() const { return listens_; }
  int port() const { return port_; }

 private:
  FileDescriptor socket_;
  bool listens_ = false;
  int port_ = 0;
};

TEST(UnusedPortTest, CanBeListenedOn) {
  const absl::StatusOr<int> port = UnusedPort();
  ASSERT_THAT(port, IsOk());
  EXPECT_TRUE(Listener(*port).listens());
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
  const Listener other(port);
  ASSERT_TRUE(other.listens());
  EXPECT_THAT(UnusedPort({.first = port, .last = port}), Fails(StatusCode::kResourceExhausted, "no unused"));
}

TEST(UnusedPortTest, TakesThePlaceOfAnyPortAndOfNoOther) {
  EXPECT_THAT(WithUnusedPort("[::1]:0").value(), testing::MatchesRegex("\\[::1\\]:[1-9][0-9]*"));
  EXPECT_EQ(WithUnusedPort("127.0.0.1:8080").value(), "127.0.0.1:8080");
}

TEST(ListenErrorTest, APortInUseMayBeFreeLater) {
  const Listener other;
  ASSERT_TRUE(other.listens());
  for (const char* host : {"127.0.0.1", "0.0.0.0", ""}) {
    const std::string address = absl::StrCat(host, ":", other.port());
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
