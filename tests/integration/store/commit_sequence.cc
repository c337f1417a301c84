#include "tests/integration/store/commit_sequence.h"

#include <gtest/gtest.h>

#include "tests/integration/store/changes.h"
#include "tests/support/status_matchers.h"

namespace penstock {

std::string BatchOf(uint64_t i) { return std::string(i * 7919 % 40'000, static_cast<char>('a' + i % 26)); }

std::vector<JobChange> CommitOf(uint64_t i) {
  JobChange change = Append(1, 3 * i - 2, 3);
  change.batches = {{i, BatchOf(i)}};
  if (i >= kKeptBatches) change.forget_batches_before = i + 1 - kKeptBatches;
  if (i % 10 == 0) change.snapshot = Snapshot{.sequence = 3 * i - 5, .bytes = BatchOf(i + 1)};
  return {change, Append(2, i, 1)};
}

uint64_t CheckCommits(EventStore* store) {
  const auto loaded = store->Load();
  EXPECT_THAT(loaded, IsOk());
  if (!loaded.ok() || loaded->empty()) return 0;
  EXPECT_EQ(loaded->size(), 2);
  const StoredJob& job = loaded->front();
  const uint64_t commits = loaded->back().events.size();
  EXPECT_THAT(loaded->back(), HasEvents(2, 1, commits));

  const uint64_t snapshots = commits / 10 * 10;
  EXPECT_EQ(job.snapshot.has_value(), snapshots > 0);
  if (job.snapshot.has_value()) {
    EXPECT_EQ(job.snapshot->bytes, BatchOf(snapshots + 1));
  }
  EXPECT_EQ(job.first_sequence, snapshots > 0 ? 3 * snapshots - 4 : 1);
  EXPECT_EQ(job.events,
            MakeEvents(1, job.first_sequence, static_cast<int>(3 * commits + 1 - job.first_sequence)));

  const uint64_t first = commits < kKeptBatches ? 1 : commits + 1 - kKeptBatches;
  for (uint64_t i = first; i <= commits; ++i) {
    const auto batch = store->GetBatch(1, i);
    EXPECT_THAT(batch, IsOk());
    if (batch.ok()) {
      EXPECT_EQ(*batch, BatchOf(i));
    }
  }
  EXPECT_FALSE(store->GetBatch(1, first - 1).ok());
  EXPECT_FALSE(store->GetBatch(1, commits + 1).ok());
  return commits;
}

}  // namespace penstock
