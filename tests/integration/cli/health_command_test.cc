// `penstock health` against a real penstock-planner.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "common/grpc/service_names.h"
#include "tests/integration/cli/penstock_process.h"
#include "tests/support/planner_process.h"
#include "tests/support/test_certificates.h"

namespace penstock {
namespace {

using testing::HasSubstr;

Ended Health(Penstock& penstock, const std::string& address, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"health", "--planner", address});
  return penstock.Run(more);
}

TEST(HealthCommand, EndsWithZeroWhileThePlannerServes) {
  Penstock penstock;
  const auto planner = PlannerProcess::Start(PENSTOCK_PLANNER_BINARY);
  ASSERT_TRUE(planner.ok()) << planner.status();
  const std::string address = (*planner)->address();
  for (const char* service : {"", kReadyForJobs, kLeads}) {
    const Ended ended = Health(penstock, address, {"--service", service});
    EXPECT_EQ(ended.code, 0) << service << ": " << ended.errors;
    EXPECT_EQ(ended.output, "SERVING\n");
  }
  (*planner)->Kill();
  const Ended ended = Health(penstock, address);
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.errors, HasSubstr(address));
}

TEST(HealthCommand, NeedsNoCertificateOfItsOwnButTheAuthorityOfThePlanners) {
  Penstock penstock;
  const TestCertificates certificates;
  const ServerSecurity server = certificates.Server();
  const auto planner = PlannerProcess::Start(
      PENSTOCK_PLANNER_BINARY, {"--tls-cert", server.certificate, "--tls-key", server.key, "--tls-client-ca",
                                server.client_authority});
  ASSERT_TRUE(planner.ok()) << planner.status();
  const std::string address = (*planner)->address();
  const Ended trusting = Health(penstock, address, {"--tls-ca", certificates.Path("ca.crt")});
  EXPECT_EQ(trusting.code, 0) << trusting.errors;
  EXPECT_EQ(Health(penstock, address, {"--timeout", "2"}).code, 1) << "not encrypted";
}

TEST(HealthCommand, RefusesAListOfPlannersAndAServiceThatNobodyHas) {
  Penstock penstock;
  const Ended list = Health(penstock, "a:7070,b:7070");
  EXPECT_EQ(list.code, 2);
  EXPECT_THAT(list.errors, HasSubstr("--planner a:7070,b:7070"));
  const auto planner = PlannerProcess::Start(PENSTOCK_PLANNER_BINARY);
  ASSERT_TRUE(planner.ok()) << planner.status();
  EXPECT_NE(Health(penstock, (*planner)->address(), {"--service", "nobody"}).code, 0);
}

}  // namespace
}  // namespace penstock
