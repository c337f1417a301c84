// Several planners on one store: who leads, and that nobody else writes.
#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"
#include "planner/service/store/open/open_event_store.h"
#include "planner/service/store/postgres/postgres_event_store.h"
#include "planner/service/store/postgres/postgres_lease.h"
#include "tests/integration/store/changes.h"
#include "tests/support/postgres_fixture.h"
#include "tests/support/postgres_proxy.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using absl::StatusCode;
using testing::ElementsAre;

constexpr absl::Duration kShort = absl::Milliseconds(300);
constexpr absl::Duration kLong = absl::Minutes(10);

class LeaseTest : public PostgresFixture {
 protected:
  std::unique_ptr<PostgresLease> MakeLease(absl::Duration time_to_live) const {
    auto lease = PostgresLease::Open(url_, {.time_to_live = time_to_live});
    EXPECT_THAT(lease, IsOk());
    return *std::move(lease);
  }

  std::unique_ptr<PostgresEventStore> OpenStore(Term term) const {
    auto store = PostgresEventStore::Open(url_, {.term = term});
    EXPECT_THAT(store, IsOk());
    return *std::move(store);
  }

  // Tries until it leads; as a planner that waits to take over does.
  static Term WaitToAcquire(Lease* lease, const std::string& holder) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (absl::Now() < deadline) {
      const auto term = lease->Acquire(holder);
      if (term.ok()) return *term;
      EXPECT_THAT(term, Fails(StatusCode::kAlreadyExists, "leads"));
    }
    ADD_FAILURE() << holder << " never led";
    return 0;
  }

  // Lets the time of the lease be over by the server's clock.
  void Expire() const { Sql("UPDATE penstock_lease SET expires_at = clock_timestamp()"); }
};

TEST_F(LeaseTest, OneOfTwoLeads) {
  const auto first = MakeLease(kLong), second = MakeLease(kLong);
  EXPECT_EQ(*first->Acquire("first"), 1);
  EXPECT_THAT(second->Acquire("second"), Fails(StatusCode::kAlreadyExists, "'first' leads (term 1)"));
  EXPECT_THAT(first->Renew(), IsOk());
  EXPECT_THAT(second->Renew(), Fails(StatusCode::kAborted, "another planner leads"));
  const LeaseState state = *second->Read();
  EXPECT_EQ(state.term, 1);
  EXPECT_EQ(state.holder, "first");
  EXPECT_GT(state.remaining, kLong / 2);
}

TEST_F(LeaseTest, NobodyLeadsAtFirst) {
  const LeaseState state = *MakeLease(kLong)->Read();
  EXPECT_EQ(state.term, 0);
  EXPECT_EQ(state.holder, "");
  EXPECT_LE(state.remaining, absl::ZeroDuration());
}

TEST_F(LeaseTest, ALeaseThatIsNotRenewedIsTakenOver) {
  const auto first = MakeLease(kShort), second = MakeLease(kLong);
  const absl::Time start = absl::Now();
  EXPECT_EQ(*first->Acquire("first"), 1);
  EXPECT_EQ(WaitToAcquire(second.get(), "second"), 2);
  EXPECT_GE(absl::Now() - start, kShort / 2);
  EXPECT_THAT(first->Renew(), Fails(StatusCode::kAborted, "term 1 of this planner is over"));
  EXPECT_EQ(second->Read()->holder, "second");
}

TEST_F(LeaseTest, ALeaseThatIsRenewedStays) {
  const auto first = MakeLease(kLong), second = MakeLease(kLong);
  EXPECT_EQ(*first->Acquire("first"), 1);
  Sql("UPDATE penstock_lease SET expires_at = clock_timestamp() + interval '1 ms'");
  EXPECT_THAT(first->Renew(), IsOk());
  EXPECT_THAT(second->Acquire("second"), Fails(StatusCode::kAlreadyExists, "'first' leads"));
}

TEST_F(LeaseTest, ALateRenewalOfALeaseThatNobodyTookHoldsItAgain) {
  const auto first = MakeLease(kLong), second = MakeLease(kLong);
  EXPECT_EQ(*first->Acquire("first"), 1);
  Expire();
  EXPECT_THAT(first->Renew(), IsOk());
  EXPECT_THAT(second->Acquire("second"), Fails(StatusCode::kAlreadyExists, "term 1"));
}

TEST_F(LeaseTest, AHolderThatRestartedDoesNotWaitForItself) {
  EXPECT_EQ(*MakeLease(kLong)->Acquire("first"), 1);
  EXPECT_EQ(*MakeLease(kLong)->Acquire("first"), 2);
}

TEST_F(LeaseTest, ALeaseThatIsGivenUpIsFree) {
  const auto first = MakeLease(kLong), second = MakeLease(kLong);
  const Term term = *first->Acquire("first");
  const auto store = OpenStore(term);
  EXPECT_THAT(first->Release(), IsOk());
  EXPECT_THAT(first->Release(), IsOk());
  EXPECT_THAT(store->Commit({Append(1, 1, 1)}), Fails(StatusCode::kAborted, "another planner leads"));
  EXPECT_GT(*second->Acquire("second"), term);
}

TEST_F(LeaseTest, AnOldLeaderThatWakesUpCannotWrite) {
  const auto first = MakeLease(kLong), second = MakeLease(kLong);
  const auto old_store = OpenStore(*first->Acquire("first"));
  ASSERT_THAT(old_store->Commit({Append(1, 1, 1)}), IsOk());
  Expire();
  // Nobody has taken over yet: it still may.
  ASSERT_THAT(old_store->Commit({Append(1, 2, 1)}), IsOk());

  const auto new_store = OpenStore(*second->Acquire("second"));
  EXPECT_THAT(*new_store->Load(), ElementsAre(HasEvents(1, 1, 2)));
  EXPECT_THAT(old_store->Commit({Append(1, 3, 1)}), Fails(StatusCode::kAborted, "term 2 has begun"));
  EXPECT_THAT(old_store->Commit({AddSnapshot(1, 2, "old")}), Fails(StatusCode::kAborted, "term 2 has begun"));
  EXPECT_THAT(old_store->Commit({Remove(1)}), Fails(StatusCode::kAborted, "term 2 has begun"));
  ASSERT_THAT(new_store->Commit({Append(1, 3, 1)}), IsOk());
  EXPECT_THAT(*new_store->Load(), ElementsAre(HasEvents(1, 1, 3)));
  EXPECT_THAT(OpenStore(0)->Commit({Append(1, 4, 1)}), Fails(StatusCode::kAborted, "term 2 has begun"));
}

TEST_F(LeaseTest, AnOldLeaderIsFencedInTheMiddleOfACommit) {
  const auto first = MakeLease(kLong), second = MakeLease(kLong);
  const Term term = *first->Acquire("first");
  const Deadline deadline = Deadline::After(absl::Seconds(30));
  // What a commit does, as far as its first exchange; then the leader stands still.
  PostgresConnection leader(url_, absl::Seconds(5));
  ASSERT_THAT(leader.Connect(deadline), IsOk());
  ASSERT_THAT(
      leader.Run({{.sql = "BEGIN"}, {.sql = "SELECT term FROM penstock_lease FOR KEY SHARE"}}, deadline),
      IsOk());
  // Its own renewals are not held up.
  EXPECT_THAT(first->Renew(), IsOk());
  Expire();
  // The server ends the transaction that stands still, and the next leader goes on.
  EXPECT_EQ(WaitToAcquire(second.get(), "second"), term + 1);
  EXPECT_FALSE(leader.Run({{.sql = "COMMIT"}}, deadline).ok());
}

TEST_F(LeaseTest, ManyWhoWantToLeadGetTermsOfTheirOwn) {
  constexpr size_t kPlanners = 4, kTermsOfEach = 5;
  const Deadline deadline = Deadline::After(absl::Seconds(30));
  Mutex mutex;
  std::vector<Term> terms;
  std::vector<std::thread> planners;
  for (size_t planner = 0; planner < kPlanners; ++planner) {
    planners.emplace_back([&, planner] {
      const auto lease = MakeLease(kLong);
      for (size_t led = 0; led < kTermsOfEach && !deadline.is_over();) {
        const auto term = lease->Acquire(absl::StrCat("planner-", planner));
        // Another one leads: how often that happens depends on who runs when.
        if (!term.ok()) continue;
        ++led;
        MutexLock lock(&mutex);
        terms.push_back(*term);
        EXPECT_THAT(lease->Release(), IsOk());
      }
    });
  }
  for (std::thread& planner : planners) planner.join();
  EXPECT_EQ(terms.size(), kPlanners * kTermsOfEach);
  std::ranges::sort(terms);
  EXPECT_TRUE(std::ranges::adjacent_find(terms) == terms.end());
}

TEST_F(LeaseTest, StopEndsACallThatWaits) {
  PostgresProxy proxy(server_->socket_path());
  const auto lease = *PostgresLease::Open(proxy.Url(database_), {});
  proxy.Freeze(true);
  std::thread stopper([&] { lease->Stop(); });
  EXPECT_THAT(lease->Acquire("first"), Fails(StatusCode::kCancelled, "stopped"));
  stopper.join();
}

TEST_F(LeaseTest, TheStoreOfAUrlAndItsLeaseBelongTogether) {
  const auto lease = *OpenLease(url_, {});
  const auto store = *OpenEventStore(url_, {.term = *lease->Acquire("first")});
  EXPECT_THAT(store->Commit({Append(1, 1, 1)}), IsOk());
}

}  // namespace
}  // namespace penstock
