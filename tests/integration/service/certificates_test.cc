// What is said of certificates that have expired, by whom, and how soon: real ones, made by openssl.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/files/files.h"
#include "common/grpc/security/certificate_dates.h"
#include "common/grpc/security/handshake.h"
#include "planner/service/main/certificate_watch.h"
#include "tests/integration/cli/penstock_process.h"
#include "tests/integration/service/planner_fixture.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_certificates.h"

namespace penstock {
namespace {

using absl::StatusCode;
using testing::HasSubstr;
using testing::Not;

// A call repeats what finds no planner for 10 s.
constexpr absl::Duration kSoon = absl::Seconds(5);
constexpr absl::Duration kLimit = absl::Seconds(20);

// The day before today, as certificates name it.
std::string Yesterday() {
  return absl::FormatTime("%Y-%m-%d", absl::Now() - absl::Hours(24), absl::UTCTimeZone());
}

class CertificatesTest : public PlannerFixture {
 protected:
  void SetUp() override {
    certificates_.MakeCaller("client", "alice");
    certificates_.MakeCaller("client", "late", /*days=*/-1);
  }

  void ServeWith(const TestCertificates& certificates) { Serve({.security = certificates.Server()}); }

  // With the planner's own address, and files of these certificates.
  static std::vector<std::string> Command(const std::string& name, const std::string& address,
                                          const ClientSecurity& files) {
    return {name,         "--planner",       address,     "--tls-ca", files.authority,
            "--tls-cert", files.certificate, "--tls-key", files.key};
  }

  TestCertificates certificates_;
  Penstock penstock_;
};

TEST_F(CertificatesTest, AnExpiredOneOfOnesOwnIsNamedBeforeAnybodyIsCalled) {
  EXPECT_THAT(SecurityOfChannels(certificates_.Client("client-late")),
              Fails(StatusCode::kFailedPrecondition,
                    absl::StrCat("--tls-cert: '", certificates_.Path("client-late.crt"), "' expired on ",
                                 Yesterday())));
  const Ended jobs = penstock_.Run(Command("jobs", "127.0.0.1:1", certificates_.Client("client-late")));
  EXPECT_EQ(jobs.code, 1);
  EXPECT_THAT(jobs.errors, HasSubstr("client-late.crt' expired on "));
  EXPECT_THAT(jobs.errors, HasSubstr("; renew it"));
}

TEST_F(CertificatesTest, AnExpiredOneOfThePlannerIsNamedSoonByEveryCommand) {
  certificates_.RenewPlanner(/*days=*/-1);
  ServeWith(certificates_);
  for (const char* name : {"jobs", "status", "health"}) {
    const absl::Time begin = absl::Now();
    const Ended ended = penstock_.Run(Command(name, address(), certificates_.Client("client-alice")));
    RecordProperty(absl::StrCat(name, "_ms"),
                   static_cast<int>(absl::ToInt64Milliseconds(absl::Now() - begin)));
    EXPECT_EQ(ended.code, 1) << ended.errors;
    EXPECT_THAT(ended.errors, HasSubstr(absl::StrCat("the certificate of the planner at ", address(),
                                                     " expired on ", Yesterday())));
    EXPECT_LT(absl::Now() - begin, kSoon) << name;
  }
}

TEST_F(CertificatesTest, AClientIsToldOnceItsOwnHasExpiredWhileItRan) {
  ServeWith(certificates_);
  const auto security = SecurityOfChannels(certificates_.Client("client-alice"));
  ASSERT_THAT(security, IsOk());
  EXPECT_THAT(security->explain(address()), IsOk());
  certificates_.MakeCaller("client", "alice", /*days=*/-1);
  EXPECT_THAT(security->explain(address()), Fails(StatusCode::kUnavailable, "' expired on "));
}

TEST_F(CertificatesTest, ACallerWhomThePlannerDoesNotAcceptIsToldSo) {
  ServeWith(certificates_);
  TestCertificates others;
  others.MakeCaller("client", "eve");
  ClientSecurity eve = others.Client("client-eve");
  eve.authority = certificates_.Path("ca.crt");
  const absl::Time begin = absl::Now();
  EXPECT_THAT(PlannerClient(address(), *SecurityOfChannels(eve)).ListJobs(),
              Fails(StatusCode::kUnavailable,
                    absl::StrCat("does not accept the certificate of --tls-cert '", eve.certificate, "'")));
  EXPECT_LT(absl::Now() - begin, kSoon);
}

TEST_F(CertificatesTest, WhatElseIsWrongWithAHandshakeIsSaidToo) {
  ServeWith(certificates_);
  const TestCertificates others;
  EXPECT_THAT(ExplainHandshake(address(), others.Client(""), kLimit),
              Fails(StatusCode::kUnavailable, "is not accepted: "));
  ClientSecurity other_name = certificates_.Client("client-alice");
  other_name.server_name = "elsewhere.test";
  EXPECT_THAT(ExplainHandshake(address(), other_name, kLimit),
              Fails(StatusCode::kUnavailable, "--tls-server-name"));
  other_name.server_name = "planner.test";
  EXPECT_THAT(ExplainHandshake(address(), other_name, kLimit), IsOk());
  // Of several the one that has something to say.
  EXPECT_THAT(ExplainHandshake(absl::StrCat("127.0.0.1:1, ", address()), others.Client(""), kLimit),
              Fails(StatusCode::kUnavailable, address()));
  Serve({});
  EXPECT_THAT(ExplainHandshake(address(), certificates_.Client("client-alice"), kLimit),
              Fails(StatusCode::kUnavailable, "does not speak TLS"));
}

TEST_F(CertificatesTest, NothingIsSaidOfAPlannerThatIsNotThereOrWhereNothingIsEncrypted) {
  EXPECT_THAT(ExplainHandshake("127.0.0.1:1", certificates_.Client("client-alice"), kLimit), IsOk());
  EXPECT_THAT(ExplainHandshake("127.0.0.1:1", {}, kLimit), IsOk());
}

TEST_F(CertificatesTest, AuthoritiesMayExpireOneAfterTheOther) {
  certificates_.MakeCaller("client", "alice", /*days=*/2);
  const absl::Time tomorrow = absl::Now() + absl::Hours(36);
  const std::string authority = certificates_.Path("ca.crt");
  const std::string longer = certificates_.Path("client-alice.crt");
  // Whatever certificates these are.
  const std::string both = certificates_.Write("both.crt", *ReadFile(authority) + *ReadFile(longer));
  EXPECT_THAT(CheckSomeAuthorityIsValid(both, "--tls-ca", tomorrow), IsOk());
  EXPECT_THAT(CheckChainIsValid(both, "--tls-cert", tomorrow),
              Fails(StatusCode::kFailedPrecondition, "--tls-cert: '"));
  EXPECT_THAT(CheckSomeAuthorityIsValid(authority, "--tls-ca", tomorrow),
              Fails(StatusCode::kFailedPrecondition, "' expired on "));
  EXPECT_THAT(CheckChainIsValid(authority, "--tls-cert", absl::Now() - absl::Hours(24)),
              Fails(StatusCode::kFailedPrecondition, "is not valid before "));
  EXPECT_THAT(DatesOfCertificates("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
              Fails(StatusCode::kInvalidArgument, "damaged"));
}

TEST_F(CertificatesTest, ThePlannerSaysInLogAndMetricsUntilWhenItsOwnAreValid) {
  MetricsRegistry registry;
  CertificateWatch watch(certificates_.Server(), &registry);
  const auto end = DatesOfChain(certificates_.Path("planner.crt"), "--tls-cert")->end;
  EXPECT_THAT(registry.Text(),
              HasSubstr(absl::StrCat("penstock_certificate_expiry_timestamp_seconds{file=\"tls-cert\"} ",
                                     absl::ToUnixSeconds(end))));
  const auto said = [&](absl::Time now) {
    testing::internal::CaptureStderr();
    watch.Look(now);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said(end - absl::Hours(24 * 15)), "");
  const std::string soon = said(end - absl::Hours(24 * 3));
  EXPECT_THAT(soon, HasSubstr("a certificate expires soon flag=--tls-cert"));
  EXPECT_THAT(soon, HasSubstr("days=3"));
  EXPECT_EQ(said(end - absl::Hours(24 * 3) + absl::Hours(23)), "") << "once a day";
  EXPECT_THAT(said(end - absl::Hours(24 * 2)), HasSubstr("expires soon"));
  EXPECT_THAT(said(end + absl::Minutes(1)), HasSubstr("a certificate has expired")) << "at once";
}

TEST_F(CertificatesTest, APlannerThatStartsWithAnExpiredOneSaysSo) {
  certificates_.RenewPlanner(/*days=*/-1);
  testing::internal::CaptureStderr();
  ServeWith(certificates_);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("a certificate has expired"));
}

}  // namespace
}  // namespace penstock
