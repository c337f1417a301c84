#include "common/process/listeners.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

#include "tests/support/local_connection.h"
#include "tests/support/local_listener.h"

namespace penstock {
namespace {

// Long enough for a connection over loopback that is going to be made.
constexpr int kWaitMs = 300;

// A connection that is under way.
FileDescriptor ConnectTo(uint16_t port) {
  FileDescriptor descriptor(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  EXPECT_TRUE(StartConnecting(descriptor, port));
  return descriptor;
}

bool IsConnected(const FileDescriptor& descriptor) {
  pollfd waiting = {.fd = descriptor.get(), .events = POLLOUT, .revents = 0};
  return poll(&waiting, 1, kWaitMs) == 1 && (waiting.revents & (POLLERR | POLLHUP)) == 0;
}

class ListenersTest : public ::testing::Test {
 protected:
  void Listen() {
    opened_ = ListenersOpenedBy([&] { socket_ = ListenLocally(); });
  }
  FileDescriptor Accept() const { return FileDescriptor(accept(socket_.get(), nullptr, nullptr)); }
  uint16_t port() const { return PortOf(socket_); }

  FileDescriptor socket_;
  Listeners opened_;
};

TEST_F(ListenersTest, TakesWhoComesBeforeAndNobodyAfter) {
  Listen();
  ASSERT_EQ(opened_.size(), 1);
  const FileDescriptor peer = ConnectTo(port());
  ASSERT_TRUE(IsConnected(peer));
  const FileDescriptor accepted = Accept();

  ASSERT_TRUE(opened_.Refuse().ok());

  EXPECT_FALSE(IsConnected(ConnectTo(port())));
  // The peer's connection is as it was, in both directions.
  char byte = 'x';
  ASSERT_EQ(send(peer.get(), &byte, 1, 0), 1);
  EXPECT_EQ(recv(accepted.get(), &byte, 1, 0), 1);
  ASSERT_EQ(send(accepted.get(), &byte, 1, 0), 1);
  pollfd waiting = {.fd = peer.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&waiting, 1, kWaitMs), 1);
}

TEST_F(ListenersTest, HearsAgain) {
  Listen();
  ASSERT_TRUE(opened_.Refuse().ok());
  EXPECT_FALSE(IsConnected(ConnectTo(port())));
  ASSERT_TRUE(opened_.Hear().ok());
  EXPECT_TRUE(IsConnected(ConnectTo(port())));
}

TEST_F(ListenersTest, SoManyWaitAndNoMore) {
  Listen();
  ASSERT_TRUE(opened_.LimitWaiting(1).ok());
  std::vector<FileDescriptor> waiting;
  for (int i = 0; i < 4; ++i) waiting.push_back(ConnectTo(port()));
  // The kernel takes one more than it is told.
  EXPECT_EQ(std::ranges::count_if(waiting, IsConnected), 2);
}

TEST_F(ListenersTest, LeavesListenersAloneThatWereThereBefore) {
  const FileDescriptor before = ListenLocally();
  Listen();
  ASSERT_EQ(opened_.size(), 1);
  ASSERT_TRUE(opened_.Refuse().ok());
  EXPECT_TRUE(IsConnected(ConnectTo(PortOf(before))));
}

TEST_F(ListenersTest, FindsNothingWhereNothingListens) {
  EXPECT_TRUE(ListenersOpenedBy([] {}).size() == 0);
  FileDescriptor no_listener;
  EXPECT_EQ(ListenersOpenedBy([&] { no_listener = FileDescriptor(socket(AF_INET, SOCK_STREAM, 0)); }).size(),
            0);
}

}  // namespace
}  // namespace penstock
