#include "worker/comm/deaf_listener.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "worker/comm/listening_socket.h"

namespace penstock::worker {
namespace {

// Long enough for a connection over loopback that is going to be made.
constexpr int kWaitMs = 300;

// A connection that is under way.
FileDescriptor ConnectTo(uint16_t port) {
  FileDescriptor descriptor(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int result = connect(descriptor.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  EXPECT_TRUE(result == 0 || errno == EINPROGRESS);
  return descriptor;
}

bool IsConnected(const FileDescriptor& descriptor) {
  pollfd waiting = {.fd = descriptor.get(), .events = POLLOUT, .revents = 0};
  return poll(&waiting, 1, kWaitMs) == 1 && (waiting.revents & (POLLERR | POLLHUP)) == 0;
}

class DeafListenerTest : public ::testing::Test {
 protected:
  void Listen() {
    opened_ = ListenersOpenedBy([&] { socket_ = *ListenOn("127.0.0.1"); });
  }
  FileDescriptor Accept() const { return FileDescriptor(accept(socket_.descriptor.get(), nullptr, nullptr)); }

  ListeningSocket socket_;
  std::vector<FileDescriptor> opened_;
};

TEST_F(DeafListenerTest, TakesWhoComesBeforeAndNobodyAfter) {
  Listen();
  ASSERT_EQ(opened_.size(), 1);
  const FileDescriptor peer = ConnectTo(socket_.port);
  ASSERT_TRUE(IsConnected(peer));
  const FileDescriptor accepted = Accept();

  ASSERT_TRUE(RefuseConnections(opened_).ok());

  EXPECT_FALSE(IsConnected(ConnectTo(socket_.port)));
  // The peer's connection is as it was, in both directions.
  char byte = 'x';
  ASSERT_EQ(send(peer.get(), &byte, 1, 0), 1);
  EXPECT_EQ(recv(accepted.get(), &byte, 1, 0), 1);
  ASSERT_EQ(send(accepted.get(), &byte, 1, 0), 1);
  pollfd waiting = {.fd = peer.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&waiting, 1, kWaitMs), 1);
}

TEST_F(DeafListenerTest, LeavesListenersAloneThatWereThereBefore) {
  const ListeningSocket before = *ListenOn("127.0.0.1");
  Listen();
  ASSERT_EQ(opened_.size(), 1);
  ASSERT_TRUE(RefuseConnections(opened_).ok());
  EXPECT_TRUE(IsConnected(ConnectTo(before.port)));
}

TEST_F(DeafListenerTest, FindsNothingWhereNothingListens) {
  EXPECT_TRUE(ListenersOpenedBy([] {}).empty());
  FileDescriptor no_listener;
  EXPECT_TRUE(
      ListenersOpenedBy([&] { no_listener = FileDescriptor(socket(AF_INET, SOCK_STREAM, 0)); }).empty());
}

}  // namespace
}  // namespace penstock::worker
