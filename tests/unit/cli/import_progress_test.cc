#include "planner/cli/import_progress.h"

#include <gtest/gtest.h>

namespace penstock::cli {
namespace {

ImportProgress Progress(uint64_t megabytes, uint64_t samples) {
  return {.files_done = 37,
          .files = 120,
          .bytes_done = megabytes * 1'000'000,
          .bytes = 12'345'000'000,
          .samples = samples};
}

TEST(ImportProgress, ALineSaysShareSpeedAndTimeLeft) {
  ImportProgressLines lines(absl::Seconds(1));
  EXPECT_EQ(lines.Next(Progress(0, 0), absl::Seconds(100)), std::nullopt);
  EXPECT_EQ(lines.Next(Progress(5000, 3'200'000), absl::Seconds(350)),
            "40 % of 12,345 MB (file 38 of 120), 3,200,000 samples, 20 MB/s, 6 min left");
}

TEST(ImportProgress, ShortImportsSayNothing) {
  ImportProgressLines lines(absl::Seconds(1));
  for (int tenths = 0; tenths < 30; ++tenths)
    EXPECT_EQ(lines.Next(Progress(static_cast<uint64_t>(tenths), 1), tenths * absl::Milliseconds(100)),
              std::nullopt);
}

TEST(ImportProgress, LinesComeAsOftenAsTheyShall) {
  ImportProgressLines lines(absl::Seconds(30));
  std::vector<int> times;
  for (int second = 0; second < 100; ++second)
    if (lines.Next(Progress(1, 1), absl::Seconds(second)).has_value()) times.push_back(second);
  EXPECT_EQ(times, (std::vector<int>{30, 60, 90}));
}

// What an earlier import had read is no speed.
TEST(ImportProgress, SpeedIsOfThisImportAlone) {
  ImportProgressLines lines(absl::Seconds(1));
  EXPECT_EQ(lines.Next(Progress(12'000, 5), absl::ZeroDuration()), std::nullopt);
  EXPECT_EQ(lines.Next(Progress(12'045, 9), absl::Seconds(10)),
            "97 % of 12,345 MB (file 38 of 120), 9 samples, 4.5 MB/s, 67 s left");
}

// Of a Parquet file nobody knows how much has been read.
TEST(ImportProgress, WithoutBytesThereIsNoTimeLeft) {
  ImportProgressLines lines(absl::Seconds(1));
  const ImportProgress begun = {.files = 1, .bytes = 2'000'000};
  EXPECT_EQ(lines.Next(begun, absl::ZeroDuration()), std::nullopt);
  ImportProgress later = begun;
  later.samples = 1000;
  EXPECT_EQ(lines.Next(later, absl::Seconds(5)), "0 % of 2 MB (file 1 of 1), 1,000 samples");
}

TEST(ImportProgress, TimesAreForPeople) {
  EXPECT_EQ(TimeLeft(absl::Milliseconds(99'400)), "99 s");
  EXPECT_EQ(TimeLeft(absl::Seconds(100)), "2 min");
  EXPECT_EQ(TimeLeft(absl::Seconds(7500)), "2 h 5 min");
}

}  // namespace
}  // namespace penstock::cli
