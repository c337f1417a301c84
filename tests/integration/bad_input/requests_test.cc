// Every row of requests/: a request that makes no sense, over gRPC to one real planner, ends with the
// row's status and names the row's field. Afterwards the planner serves as before, in as much memory.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/strip.h"
#include "common/grpc/channel.h"
#include "common/grpc/status_conversion.h"
#include "common/process/sanitized.h"
#include "tests/integration/bad_input/message_changes.h"
#include "tests/integration/bad_input/planner_under_test.h"
#include "tests/integration/bad_input/table.h"
#include "tests/support/raw_call.h"

namespace penstock {
namespace {

// "SubmitBatches" of "SubmitBatches gpt".
std::string MethodOf(const std::string& section) { return section.substr(0, section.find(' ')); }

// The request of a row; its section's valid one with the row's changes, or its bytes.
absl::StatusOr<std::string> RequestOf(const Row& row) {
  std::string bytes;
  if (absl::StartsWith(row.section, "bytes ")) {
    if (!absl::CUnescape(row.change, &bytes)) return absl::InvalidArgumentError("wrong escapes");
    return bytes;
  }
  const std::unique_ptr<google::protobuf::Message> request = ValidRequest(row.section);
  if (request == nullptr) return absl::InvalidArgumentError("no such section");
  if (absl::Status status = ApplyChanges(row.change, request.get()); !status.ok()) return status;
  request->SerializeToString(&bytes);
  return bytes;
}

TEST(BadRequests, EndWithTheirStatusAndNameTheirField) {
  const auto planner = PlannerUnderTest::Start();
  ASSERT_TRUE(planner.ok()) << planner.status();
  const int64_t resident_before = (*planner)->process().ResidentBytes();
  const auto channel = CreateClientChannel((*planner)->process().address());
  int rows = 0;
  for (const Row& row : ReadTable(PENSTOCK_BAD_INPUT "/requests")) {
    const absl::StatusOr<std::string> request = RequestOf(row);
    ASSERT_TRUE(request.ok()) << row.place << ": " << request.status();
    const std::string method = MethodOf(std::string(absl::StripPrefix(row.section, "bytes ")));
    absl::Status status = CallRaw(channel, method, *request);
    // A message that is refused for its size may take the connection along, and the next call with it. A
    // planner that is gone does not answer the second time either.
    if (absl::IsUnavailable(status)) status = CallRaw(channel, method, *request);
    EXPECT_EQ(absl::StatusCodeToString(status.code()), row.expected)
        << row.place << ": " << row.change << "\n"
        << status;
    EXPECT_TRUE(absl::StrContains(status.message(), row.named)) << row.place << ": " << row.change << "\n"
                                                                << status;
    ++rows;
  }
  EXPECT_GE(rows, kSanitized ? 60 : 200);
  const int64_t resident_after = (*planner)->process().ResidentBytes();
  (*planner)->ExpectServing();
  constexpr int64_t kMoreBytes = 256 << 20;  // batches of a million samples were refused
  if (kMemoryIsJudged) {
    EXPECT_LT(resident_after, resident_before + kMoreBytes);
  }
}

}  // namespace
}  // namespace penstock
