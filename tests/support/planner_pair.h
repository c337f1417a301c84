// Two penstock-planner processes on one PostgreSQL database, of which one leads.
//
//   PlannerPair pair(PENSTOCK_PLANNER, url);
//   pair.Start();
//   const int leader = pair.AwaitLeader();
//   pair.process(leader).Signal(SIGKILL);
//   EXPECT_EQ(pair.AwaitLeader({1 - leader}), 1 - leader);
//
// Failures are reported through GoogleTest, with the planners' logs. Every wait has a deadline.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/net/listening.h"
#include "common/process/child_process.h"
#include "grpc/health/v1/health.pb.h"
#include "tests/support/temporary_folder.h"

namespace penstock {

class PlannerPair {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(30);

  // `program`: penstock-planner. The lease is one of 2 s, or of PENSTOCK_LEASE_SECONDS, for measurements.
  PlannerPair(std::string program, std::string store_url);

  // Both.
  void Start();
  // One, 0 or 1: again at the same address.
  void Start(int planner);

  // "127.0.0.1:7070".
  const std::string& address(int planner) const { return planners_[planner].address; }
  // Of both, as --planner takes them.
  std::string addresses() const;
  // In the lease.
  static std::string NameOf(int planner);
  ChildProcess& process(int planner) { return *planners_[planner].process; }
  std::string Log(int planner) const;
  std::string Logs() const { return Log(0) + Log(1); }

  // UNKNOWN when it does not answer.
  grpc::health::v1::HealthCheckResponse::ServingStatus HealthOf(
      int planner, const std::string& service, absl::Duration deadline = absl::Seconds(20)) const;
  // The first of them that leads.
  int AwaitLeader(const std::vector<int>& among = {0, 1});

 private:
  // False also where it does not answer soon, as one that stands still.
  bool Leads(int planner) const;

  struct Planner {
    std::string address = WithUnusedPort("127.0.0.1:0").value();
    std::unique_ptr<ChildProcess> process;
  };

  const std::string program_;
  const std::string store_url_;
  const TemporaryFolder folder_;
  Planner planners_[2];
};

}  // namespace penstock
