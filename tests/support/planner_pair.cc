#include "tests/support/planner_pair.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/grpc/channel.h"
#include "common/grpc/service_names.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/support/port_file.h"

namespace penstock {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

PlannerPair::PlannerPair(std::string program, std::string store_url)
    : program_(std::move(program)), store_url_(std::move(store_url)) {}

std::string PlannerPair::addresses() const { return absl::StrCat(address(0), ",", address(1)); }

std::string PlannerPair::NameOf(int planner) { return absl::StrCat("planner-", planner, ".test:7070"); }

std::string PlannerPair::Log(int planner) const { return folder_.Read(absl::StrCat("log-", planner)); }

void PlannerPair::Start() {
  for (int planner = 0; planner < 2; ++planner) {
    Start(planner);
    if (testing::Test::HasFatalFailure()) return;
  }
}

void PlannerPair::Start(int planner) {
  const std::string port_file = folder_.Path(absl::StrCat("ports-", planner));
  std::filesystem::remove(port_file);
  const char* lease_seconds = std::getenv("PENSTOCK_LEASE_SECONDS");
  auto child = ChildProcess::Start(
      {.arguments = {program_, "--store", store_url_, "--listen", address(planner), "--port-file", port_file,
                     "--lease-seconds", lease_seconds != nullptr ? lease_seconds : "2", "--advertise",
                     NameOf(planner), "--planning-threads=2"},
       .log_path = folder_.Path(absl::StrCat("log-", planner))});
  ASSERT_TRUE(child.ok()) << child.status();
  planners_[planner].process = *std::move(child);
  const absl::StatusOr<ServedPorts> ports = AwaitPorts(process(planner), port_file, kPatience);
  ASSERT_TRUE(ports.ok()) << ports.status() << "\n" << Log(planner);
}

HealthCheckResponse::ServingStatus PlannerPair::HealthOf(int planner, const std::string& service,
                                                         absl::Duration deadline) const {
  const auto stub = Health::NewStub(CreateClientChannel(address(planner)));
  HealthCheckRequest request;
  request.set_service(service);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
  HealthCheckResponse response;
  return stub->Check(&context, request, &response).ok() ? response.status() : HealthCheckResponse::UNKNOWN;
}

bool PlannerPair::Leads(int planner) const {
  return HealthOf(planner, kLeads, absl::Seconds(1)) == HealthCheckResponse::SERVING;
}

int PlannerPair::AwaitLeader(const std::vector<int>& among) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (absl::Now() < deadline) {
    for (const int planner : among) {
      if (Leads(planner)) return planner;
    }
    process(among[0]).WaitFor(absl::Milliseconds(5));
  }
  ADD_FAILURE() << "nobody leads\n" << Logs();
  return among[0];
}

}  // namespace penstock
