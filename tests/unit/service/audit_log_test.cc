#include "planner/service/audit/audit_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/files/files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

class AuditLogTest : public testing::Test {
 protected:
  static AuditRecord Deleted(const std::string& job, absl::Duration at = absl::ZeroDuration()) {
    return {.time = absl::FromUnixSeconds(1'700'000'000) + at,
            .method = "DeleteJob",
            .role = "client",
            .owner = "team",
            .address = "ipv4:10.0.0.5:41",
            .job = job,
            .code = "OK"};
  }
  static AuditRecord Refused(absl::Duration at) {
    AuditRecord record = Deleted("job", at);
    record.refused = true;
    return record;
  }

  std::vector<nlohmann::json> Lines(const std::string& end = "") const {
    std::vector<nlohmann::json> lines;
    for (const absl::string_view line :
         absl::StrSplit(ReadFile(path_ + end).value_or(""), '\n', absl::SkipEmpty()))
      lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.Path("audit.jsonl");
};

TEST_F(AuditLogTest, WritesOneLineForEachCall) {
  const auto log = *AuditLog::Open(path_);
  log->Write(Deleted("mix"));
  log->Write(Deleted("bad\x1b[2J\xff"));
  const std::vector<nlohmann::json> lines = Lines();
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[0]["time"], "2023-11-14T22:13:20.000Z");
  EXPECT_EQ(lines[0]["method"], "DeleteJob");
  EXPECT_EQ(lines[0]["owner"], "team");
  EXPECT_EQ(lines[0]["address"], "ipv4:10.0.0.5:41");
  EXPECT_EQ(lines[0]["code"], "OK");
  EXPECT_THAT(*ReadFile(path_), testing::Not(testing::HasSubstr("\x1b")));
}

TEST_F(AuditLogTest, GoesOnInTheFileThatIsThere) {
  for (const char* job : {"a", "b"}) (*AuditLog::Open(path_))->Write(Deleted(job));
  EXPECT_EQ(Lines().size(), 2);
}

TEST_F(AuditLogTest, AFullFileIsKeptUnderAnotherNameAndTheOldestGoes) {
  const auto log = *AuditLog::Open(path_, {.file_bytes = 400, .files = 2});
  for (int i = 0; i < 20; ++i) log->Write(Deleted(absl::StrCat("job-", i)));
  EXPECT_EQ(Lines().back()["job"], "job-19");
  EXPECT_EQ(Lines(".1").back()["job"].get<std::string>() < Lines().front()["job"].get<std::string>(), true);
  EXPECT_FALSE(Lines(".2").empty());
  EXPECT_FALSE(std::filesystem::exists(path_ + ".3"));
  EXPECT_LE(std::filesystem::file_size(path_), 400);
}

TEST_F(AuditLogTest, RefusalsBeyondSomeASecondAreCountedAlone) {
  const auto log = *AuditLog::Open(path_, {.refusals_a_second = 3});
  for (int i = 0; i < 10; ++i) log->Write(Refused(absl::Milliseconds(i)));
  log->Write(Deleted("mix", absl::Milliseconds(20)));
  EXPECT_EQ(Lines().size(), 4) << "changes are always written";
  log->Write(Refused(absl::Seconds(1)));
  const std::vector<nlohmann::json> lines = Lines();
  ASSERT_EQ(lines.size(), 6);
  EXPECT_EQ(lines[4]["reason"], "7 more calls were refused in the second before");
}

TEST_F(AuditLogTest, AFileThatCannotBeOpenedIsNamed) {
  EXPECT_THAT(AuditLog::Open(folder_.Path("no/such/folder")).status(),
              Fails(absl::StatusCode::kNotFound, "no/such/folder"));
}

}  // namespace
}  // namespace penstock
