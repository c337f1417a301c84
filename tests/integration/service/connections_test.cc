// Strangers who connect to the planner and do nothing good: what they hold is bounded.
#include <gtest/gtest.h>
#include <poll.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/grpc/channel.h"
#include "common/grpc/limits.h"
#include "common/grpc/status_conversion.h"
#include "common/process/child_process.h"
#include "common/process/open_files.h"
#include "penstock/client/planner_client.h"
#include "penstock/v1/planner_service.grpc.pb.h"
#include "tests/support/local_connection.h"
#include "tests/support/port_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);
// What shells and systemd give by default.
constexpr int kMostDescriptors = 1024;

class ConnectionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    AllowManyOpenFiles();
    const std::string port_file = folder_.Path("ports.json");
    auto child = ChildProcess::Start(
        {.arguments = {"prlimit", absl::StrCat("--nofile=", kMostDescriptors, ":", kMostDescriptors),
                       PENSTOCK_PLANNER, "--store=memory", "--port-file", port_file},
         .log_path = folder_.Path("log")});
    ASSERT_TRUE(child.ok()) << child.status();
    planner_ = *std::move(child);
    const absl::StatusOr<ServedPorts> ports = AwaitPorts(*planner_, port_file);
    ASSERT_TRUE(ports.ok()) << ports.status() << "\n" << folder_.Read("log");
    port_ = ports->planner;
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  // Begins to connect; nobody waits until it is done.
  FileDescriptor Knock() const {
    FileDescriptor descriptor(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    StartConnecting(descriptor, port_);
    return descriptor;
  }

  void AwaitLog(const std::string& text) {
    const absl::Time end = absl::Now() + kPatience;
    while (!absl::StrContains(folder_.Read("log"), text) && absl::Now() < end)
      ASSERT_FALSE(planner_->WaitFor(absl::Milliseconds(10)).has_value()) << folder_.Read("log");
    ASSERT_TRUE(absl::StrContains(folder_.Read("log"), text)) << folder_.Read("log");
  }

  const TemporaryFolder folder_;
  std::unique_ptr<ChildProcess> planner_;
  int port_ = 0;
};

TEST_F(ConnectionsTest, MoreStrangersThanDescriptorsStopNobodyWhoIsThereAndAreForgotten) {
  PlannerClient client(address());
  ASSERT_THAT(client.ListJobs(), IsOk());
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 3 * kMostDescriptors; ++i) strangers.push_back(Knock());
  AwaitLog("who comes new is not heard");
  for (int i = 0; i < 20; ++i) EXPECT_THAT(client.ListJobs(), IsOk());

  strangers.clear();

  AwaitLog("there is room for connections again");
  PlannerClient late(address());
  EXPECT_THAT(late.ListJobs(), IsOk());
  EXPECT_FALSE(absl::StrContains(folder_.Read("log"), "Too many open files")) << folder_.Read("log");
}

TEST_F(ConnectionsTest, WhoConnectsAndSaysNothingIsCutOff) {
  const FileDescriptor silent = ConnectToLocalPort(port_);
  ASSERT_GE(silent.get(), 0);
  const absl::Time end = absl::Now() + absl::Milliseconds(kHandshakeTimeoutMs) + kPatience;
  // What the server says first is read; then comes the end.
  char buffer[4096];
  ssize_t count = 1;
  while (count > 0 && absl::Now() < end) {
    pollfd waiting = {.fd = silent.get(), .events = POLLIN, .revents = 0};
    poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(end - absl::Now())));
    count = recv(silent.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  }
  EXPECT_EQ(count, 0);
}

TEST_F(ConnectionsTest, HeadersBeyondTheLimitEndTheCall) {
  const auto stub = v1::PlannerService::NewStub(CreateClientChannel(address()));
  const auto call = [&](size_t bytes) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    context.AddMetadata("x-large", std::string(bytes, 'x'));
    v1::ListJobsResponse response;
    return FromGrpcStatus(stub->ListJobs(&context, {}, &response));
  };
  EXPECT_THAT(call(kMaxMetadataBytes / 2), IsOk());
  EXPECT_EQ(call(2 * kMaxMetadataBytes).code(), absl::StatusCode::kResourceExhausted);
  // Its connection may end with it; then another is made.
  const absl::Time deadline = absl::Now() + kPatience;
  absl::Status next = call(0);
  while (absl::IsUnavailable(next) && absl::Now() < deadline) next = call(0);
  EXPECT_THAT(next, IsOk());
}

}  // namespace
}  // namespace penstock
