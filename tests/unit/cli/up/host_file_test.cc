#include "planner/cli/up/host_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace penstock::cli {
namespace {

using testing::ElementsAre;

TEST(HostFile, GivesRanksTheSlotsOfItsHostsInOrder) {
  const auto hosts =
      ParseHosts("hosts", "# two machines\nnode-a slots=2  # fast\n\n\t10.0.0.7\r\nnode_b.lan slots=3\n");
  ASSERT_THAT(hosts, IsOk());
  const auto ranks = HostOfEachRank(*hosts, 5);
  ASSERT_THAT(ranks, IsOk());
  EXPECT_THAT(*ranks, ElementsAre("node-a", "node-a", "10.0.0.7", "node_b.lan", "node_b.lan"));
}

TEST(HostFile, WithTooFewSlotsIsRefused) {
  const auto hosts = ParseHosts("hosts", "a\nb slots=2\n");
  ASSERT_THAT(hosts, IsOk());
  EXPECT_THAT(HostOfEachRank(*hosts, 4), Fails(absl::StatusCode::kInvalidArgument, "3 slots for 4 workers"));
}

TEST(HostFile, ErrorsNameFileAndLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"a\nb slots=0\n", "line 2: 'slots=0'"},
      {"a slots=x", "line 1: 'slots=x'"},
      {"a 4", "line 1: '4'"},
      {"a slots=2 slots=3", "line 1: 'slots=3'"},
      {"a slots=1025", "line 1: 'slots=1025'"},
      {"a\n\n-oProxyCommand=x\n", "line 3: '-oProxyCommand=x'"},
      {"$(reboot)", "line 1: '$(reboot)'"},
      {"a\na slots=2", "line 2: 'a' is there twice"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseHosts("my-hosts", text),
                Fails(absl::StatusCode::kInvalidArgument, absl::StrCat("--hosts 'my-hosts' ", message)));
  }
  EXPECT_THAT(ParseHosts("my-hosts", "# nobody\n"),
              Fails(absl::StatusCode::kInvalidArgument, "names no host"));
  EXPECT_THAT(ReadHostFile("/no/such/file"), Fails(absl::StatusCode::kNotFound, "/no/such/file"));
}

TEST(HostFile, ThisMachineIsKnownByItsLocalAddress) {
  EXPECT_TRUE(IsThisMachine("localhost"));
  EXPECT_TRUE(IsThisMachine("127.0.0.1"));
  EXPECT_FALSE(IsThisMachine("node-a"));
  EXPECT_FALSE(IsThisMachine("10.0.0.7"));
}

}  // namespace
}  // namespace penstock::cli
