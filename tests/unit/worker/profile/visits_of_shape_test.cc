#include "worker/profile/visits_of_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

using testing::ElementsAre;

// Kind `kind` takes 1 + kind times as long as the first one, of which both passes take 3 ms.
PassTimes TimesOf(size_t kind, double slowness = 1) {
  const double ns = 1e6 * static_cast<double>(1 + kind) * slowness;
  return {.forward_ns = ns, .backward_ns = 2 * ns, .weight_ns = ns / 2};
}

std::vector<PassTimes> NextTimes(const VisitsOfShape& visits, double slowness = 1) {
  std::vector<PassTimes> times;
  for (const size_t kind : visits.NextKinds()) times.push_back(TimesOf(kind, slowness));
  return times;
}

TEST(VisitsOfShape, HaveAllKindsAtFirstAndThenTheFirstAndOneOfTheOthersInTurn) {
  VisitsOfShape visits(4);
  std::vector<std::vector<size_t>> kinds;
  for (int visit = 0; visit < 5; ++visit) {
    kinds.push_back(visits.NextKinds());
    visits.Add(NextTimes(visits));
  }
  EXPECT_THAT(kinds, ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(0, 1), ElementsAre(0, 2),
                                 ElementsAre(0, 3), ElementsAre(0, 1)));
  VisitsOfShape of_one_kind(1);
  of_one_kind.Add(NextTimes(of_one_kind));
  EXPECT_THAT(of_one_kind.NextKinds(), ElementsAre(0));
}

TEST(VisitsOfShape, TellKindsApartThoughTheMachineIsSlowInSomeVisits) {
  VisitsOfShape visits(3);
  for (const double slowness : {1.0, 1.0, 1.6, 1.0, 1.0, 1.3, 1.0}) visits.Add(NextTimes(visits, slowness));
  const std::vector<PassTimes> medians = visits.Medians();
  ASSERT_EQ(medians.size(), 3U);
  for (size_t kind = 0; kind < 3; ++kind) {
    EXPECT_NEAR(medians[kind].forward_ns, TimesOf(kind).forward_ns, 1e-3) << kind;
    EXPECT_NEAR(medians[kind].backward_ns, TimesOf(kind).backward_ns, 1e-3) << kind;
    EXPECT_NEAR(medians[kind].weight_ns, TimesOf(kind).weight_ns, 1e-3) << kind;
  }
}

// A shape that is larger than those before it takes memory for the first time.
TEST(VisitsOfShape, DoNotCountTheFirstOneOnceThereIsAnother) {
  VisitsOfShape visits(2);
  std::vector<PassTimes> times = NextTimes(visits);
  times.front() = TimesOf(0, /*slowness=*/1.5);
  visits.Add(times);
  EXPECT_NEAR(visits.MedianOfFirst().forward_ns, TimesOf(0, 1.5).forward_ns, 1e-3) << "nothing else is known";
  visits.Add(NextTimes(visits));
  EXPECT_NEAR(visits.MedianOfFirst().forward_ns, TimesOf(0).forward_ns, 1e-3);
  EXPECT_NEAR(visits.Medians()[1].backward_ns, TimesOf(1).backward_ns, 1e-3);
}

TEST(VisitsOfShape, KnowWhatTheNextOneTakes) {
  VisitsOfShape visits(3);
  visits.Add(NextTimes(visits));
  EXPECT_NEAR(visits.NextNs(), 3e6 + 6e6, 1e-3);
  visits.Add(NextTimes(visits));
  EXPECT_NEAR(visits.NextNs(), 3e6 + 9e6, 1e-3);
}

}  // namespace
}  // namespace penstock::worker
