#include "planner/cli/up/tensorboard_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "tests/support/temporary_folder.h"

namespace penstock::cli {
namespace {

using ::testing::ElementsAre;

constexpr absl::Time kNow = absl::FromUnixMillis(1700000000500);

std::string Hex(const std::string& event) { return absl::BytesToHexString(RecordOf(event)); }

// What TensorBoard 2.21 writes for the same events (RecordWriter of tensorboard.summary.writer, messages of
// tensorboard.compat.proto).
TEST(TensorboardRecordTest, IsWhatTensorboardWrites) {
  EXPECT_EQ(Hex(VersionEvent(kNow)),
            "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110");
  EXPECT_EQ(Hex(ScalarsEvent(kNow, 300, {{"train/loss", 2.875}, {"train/learning_rate", 0}})),
            "3d000000000000006049f1ec0900002040fc54d94110ac022a2f0a110a0a747261696e2f6c6f737315000038400a1a0a"
            "13747261696e2f6c6561726e696e675f726174651500000000665713de");
  EXPECT_EQ(Hex(StartEvent(kNow, 7)), "0f000000000000006d532b090900002040fc54d94110073a0208019beb06a7");
}

class TensorboardEventsTest : public ::testing::Test {
 protected:
  TensorboardEvents Open(uint64_t first_step, absl::Time now) const {
    auto events = TensorboardEvents::Open(folder_.Path("tensorboard"), first_step, [now] { return now; });
    EXPECT_TRUE(events.ok()) << events.status();
    return *std::move(events);
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.Path("tensorboard")))
      names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }

  const TemporaryFolder folder_;
};

TEST_F(TensorboardEventsTest, AFileHasItsVersionItsStartAndWhatIsAdded) {
  TensorboardEvents events = Open(0, kNow);
  ASSERT_TRUE(events.Add(0, {{"a", 1}}).ok());
  ASSERT_TRUE(events.GoBackTo(0).ok());
  EXPECT_THAT(Files(), ElementsAre("events.out.tfevents.1700000000.penstock"));
  EXPECT_EQ(folder_.Read("tensorboard/events.out.tfevents.1700000000.penstock"),
            RecordOf(VersionEvent(kNow)) + RecordOf(StartEvent(kNow, 0)) +
                RecordOf(ScalarsEvent(kNow, 0, {{"a", 1}})) + RecordOf(StartEvent(kNow, 0)));
}

// TensorBoard reads files in the order of their names.
TEST_F(TensorboardEventsTest, ARunThatGoesOnHasAFileBehindTheOthersWhateverTheClockSays) {
  Open(0, kNow);
  Open(5, kNow);
  Open(9, kNow - absl::Hours(1));
  EXPECT_THAT(Files(), ElementsAre("events.out.tfevents.1700000000.penstock",
                                   "events.out.tfevents.1700000001.penstock",
                                   "events.out.tfevents.1700000002.penstock"));
  EXPECT_TRUE(absl::EndsWith(folder_.Read("tensorboard/events.out.tfevents.1700000001.penstock"),
                             RecordOf(StartEvent(kNow, 5))));
}

TEST_F(TensorboardEventsTest, ARunThatBeginsRemovesItsOwnFilesAlone) {
  Open(0, kNow);
  folder_.Write("tensorboard/events.out.tfevents.1600000000.other", "");
  Open(0, kNow + absl::Seconds(3));
  EXPECT_THAT(Files(),
              ElementsAre("events.out.tfevents.1600000000.other", "events.out.tfevents.1700000003.penstock"));
}

TEST_F(TensorboardEventsTest, AFolderThatCannotBeMadeIsNamed) {
  folder_.Write("tensorboard", "a file");
  const auto events = TensorboardEvents::Open(folder_.Path("tensorboard"), 0, [] { return kNow; });
  EXPECT_THAT(std::string(events.status().message()), ::testing::HasSubstr(folder_.Path("tensorboard")));
}

}  // namespace
}  // namespace penstock::cli
