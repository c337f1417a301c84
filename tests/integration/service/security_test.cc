// Who may do what, over TLS: roles by certificates and tokens, owners of jobs, files that change.
#include <gmock/gmock.h>
#include <grpc/grpc_security_constants.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/files/files.h"
#include "common/grpc/channel.h"
#include "common/grpc/health_service.h"
#include "common/grpc/status_conversion.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "penstock/v1/operations.grpc.pb.h"
#include "tests/integration/service/planner_fixture.h"
#include "tests/support/raw_call.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_certificates.h"

namespace penstock {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr char kAliceToken[] = "alice-0123456789abcdef";
constexpr char kViewerToken[] = "viewer-0123456789abcdef";

// Made once: keys take time.
TestCertificates& Certificates() {
  static TestCertificates* const certificates = [] {
    auto* made = new TestCertificates;
    for (const auto& [role, owner] :
         {std::pair("viewer", ""), std::pair("viewer", "alice"), std::pair("worker", "alice"),
          std::pair("worker", "bob"), std::pair("client", "alice"), std::pair("client", "bob"),
          std::pair("operator", "")}) {
      made->MakeCaller(role, owner);
    }
    return made;
  }();
  return *certificates;
}

class SecurityTest : public PlannerFixture {
 protected:
  void SetUp() override { Serve({.security = Certificates().Server()}); }

  static ChannelSecurity SecurityOf(const ClientSecurity& files) {
    const absl::StatusOr<ChannelSecurity> security = SecurityOfChannels(files);
    EXPECT_TRUE(security.ok()) << security.status();
    return security.value_or(ChannelSecurity{});
  }

  std::shared_ptr<grpc::Channel> Channel(const ClientSecurity& files) const {
    return CreateClientChannel(address(), {}, Among::kLeader, SecurityOf(files));
  }

  // "client-alice"; empty: nobody.
  PlannerClient As(const std::string& caller) const {
    return PlannerClient(Channel(Certificates().Client(caller)));
  }

  // With this token in place of a certificate.
  PlannerClient WithToken(const std::string& token) const {
    ClientSecurity files = Certificates().Client("");
    files.token = Certificates().Write(absl::StrCat("token-of-", token), token);
    return PlannerClient(Channel(files));
  }

  static absl::Status RegisterAs(PlannerClient client, const std::string& id, const std::string& owner = "") {
    v1::RegisterJobRequest request;
    *request.mutable_job() = MakeJob(id);
    request.mutable_job()->set_owner(owner);
    return client.RegisterJob(request).status();
  }

  static absl::Status Get(PlannerClient client, const std::string& id) {
    v1::GetJobRequest request;
    request.set_job_id(id);
    return client.GetJob(request).status();
  }

  static std::vector<std::string> JobsOf(PlannerClient client) {
    std::vector<std::string> jobs;
    const auto response = client.ListJobs();
    EXPECT_TRUE(response.ok()) << response.status();
    if (!response.ok()) return jobs;
    for (const v1::JobStatus& job : response->jobs()) jobs.push_back(job.job_id());
    return jobs;
  }

  // In PEM, as the planner showed it to a new connection; empty: the call failed.
  static std::string PlannersCertificate(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    v1::ListJobsResponse response;
    const auto stub = v1::PlannerService::NewStub(channel);
    if (!stub->ListJobs(&context, {}, &response).ok()) return "";
    const auto found = context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
    return found.empty() ? "" : std::string(found.front().data(), found.front().size());
  }

  // Until `call` ends with the code; how it ended last.
  template <typename Call>
  static StatusCode AwaitCode(StatusCode code, Call call) {
    const absl::Time end = absl::Now() + kPatience;
    absl::Status status = call();
    while (status.code() != code && absl::Now() < end) status = call();
    return status.code();
  }
};

TEST_F(SecurityTest, ARoleMayCallItsMethodsAndNoOthers) {
  const std::vector<std::string> reading = {"GetJob", "ListJobs", "GetIteration"};
  const std::vector<std::string> running = {"RegisterWorker", "Heartbeat", "StreamPrograms",
                                            "ReportIteration"};
  const std::vector<std::string> feeding = {"RegisterJob",      "SubmitBatches", "PlanBatch", "ReviseCosts",
                                            "ChangeStrategies", "DrainJob",      "DeleteJob"};
  struct Row {
    std::string caller;
    bool reads;
    bool runs;
    bool feeds;
  };
  for (const Row& row : {Row{"", false, false, false}, Row{"viewer", true, false, false},
                         Row{"worker-alice", true, true, false}, Row{"client-alice", true, true, true},
                         Row{"operator", true, true, true}}) {
    const auto channel = Channel(Certificates().Client(row.caller));
    const StatusCode refused =
        row.caller.empty() ? StatusCode::kUnauthenticated : StatusCode::kPermissionDenied;
    for (const auto& [methods, allowed] :
         {std::pair(reading, row.reads), std::pair(running, row.runs), std::pair(feeding, row.feeds)}) {
      for (const std::string& method : methods) {
        // An empty request: what is let in is refused for what it lacks, or answered.
        const absl::Status status = CallRaw(channel, method, "");
        EXPECT_EQ(status.code() == refused, !allowed) << row.caller << " " << method << ": " << status;
        if (allowed) {
          EXPECT_NE(status.code(), StatusCode::kUnavailable) << row.caller << " " << method << ": " << status;
        } else {
          EXPECT_THAT(status.message(), HasSubstr(method));
        }
      }
    }
  }
}

TEST_F(SecurityTest, OperatorsAloneOperate) {
  const auto set_level = [&](const std::string& caller) {
    grpc::ClientContext context;
    v1::SetLogLevelRequest request;
    // As it is: other tests log, too.
    request.set_level("info");
    v1::SetLogLevelResponse response;
    const auto stub = v1::PlannerOperations::NewStub(Channel(Certificates().Client(caller)));
    return FromGrpcStatus(stub->SetLogLevel(&context, request, &response)).code();
  };
  EXPECT_EQ(set_level(""), StatusCode::kUnauthenticated);
  for (const char* caller : {"viewer", "worker-alice", "client-alice"})
    EXPECT_EQ(set_level(caller), StatusCode::kPermissionDenied) << caller;
  EXPECT_EQ(set_level("operator"), StatusCode::kOk);
  for (const auto& [caller, code] : {std::pair("client-alice", StatusCode::kPermissionDenied),
                                     std::pair("operator", StatusCode::kUnimplemented)}) {
    grpc::ClientContext context;
    const auto stub = v1::PlannerOperations::NewStub(Channel(Certificates().Client(caller)));
    const auto reader = stub->BackUp(&context, {});
    v1::BackUpResponse response;
    EXPECT_FALSE(reader->Read(&response));
    // The planner of this test keeps its jobs in memory.
    EXPECT_EQ(FromGrpcStatus(reader->Finish()).code(), code) << caller;
  }
}

TEST_F(SecurityTest, TheAuditLogSaysWhoDidWhatAndWhoWasRefused) {
  const TemporaryFolder folder;
  PlannerServerOptions options = {.security = Certificates().Server()};
  options.audit = *AuditLog::Open(folder.Path("audit.jsonl"));
  Serve(options);
  EXPECT_TRUE(RegisterAs(As("client-alice"), "mix").ok());
  v1::DrainJobRequest drain;
  drain.set_job_id("mix");
  v1::ChangeStrategiesRequest change;
  change.set_job_id("mix");
  // A question changes nothing.
  EXPECT_TRUE(As("client-alice").ChangeStrategies(change).ok());
  change.add_strategies();
  EXPECT_FALSE(As("client-bob").ChangeStrategies(change).ok());
  EXPECT_FALSE(As("client-alice").ChangeStrategies(change).ok());
  EXPECT_FALSE(As("client-bob").DrainJob(drain).ok());
  EXPECT_FALSE(As("viewer").DrainJob(drain).ok());
  EXPECT_TRUE(As("operator").DrainJob(drain).ok());
  server_.reset();
  std::vector<std::string> calls;
  for (const absl::string_view line :
       absl::StrSplit(*ReadFile(folder.Path("audit.jsonl")), '\n', absl::SkipEmpty())) {
    const auto json = nlohmann::json::parse(line);
    const auto text = [&](const char* field) { return json[field].get<std::string>(); };
    calls.push_back(absl::StrCat(text("method"), " ", text("role"), " ", text("owner"), " ", text("job"), " ",
                                 text("code"), text("address").empty() ? " unknown" : ""));
  }
  EXPECT_THAT(calls, testing::ElementsAre("RegisterJob client alice mix OK",
                                          "ChangeStrategies client bob mix PERMISSION_DENIED",
                                          "ChangeStrategies client alice mix INVALID_ARGUMENT",
                                          "DrainJob client bob mix PERMISSION_DENIED",
                                          "DrainJob viewer   PERMISSION_DENIED unknown",
                                          "DrainJob operator  mix OK"));
}

TEST_F(SecurityTest, NobodyMayAskForHealthAlone) {
  const auto channel = Channel(Certificates().Client(""));
  const auto health = grpc::health::v1::Health::NewStub(channel);
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckResponse response;
  EXPECT_TRUE(health->Check(&context, {}, &response).ok());
  EXPECT_EQ(response.status(), grpc::health::v1::HealthCheckResponse::SERVING);
  EXPECT_THAT(CallRaw(channel, "NoSuchMethod", ""), Fails(StatusCode::kUnauthenticated, "NoSuchMethod"));
}

TEST_F(SecurityTest, StrangersWatchHealthInBoundedNumbersAndKeepNobodyElseFromIt) {
  // The probes' port neither encrypts nor knows anyone.
  Serve({.health_listen = "127.0.0.1:0", .security = Certificates().Server()});
  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<grpc::health::v1::HealthCheckResponse>> reader;
  };
  const auto watch = [](const std::shared_ptr<grpc::Channel>& channel) {
    auto watch = std::make_unique<Watch>();
    watch->context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    watch->reader = grpc::health::v1::Health::NewStub(channel)->Watch(&watch->context, {});
    return watch;
  };
  const auto is_told = [](Watch& watch) {
    grpc::health::v1::HealthCheckResponse response;
    return watch.reader->Read(&response);
  };
  const std::vector<std::shared_ptr<grpc::Channel>> strangers = {
      Channel(Certificates().Client("")),
      CreateClientChannel(absl::StrCat("127.0.0.1:", server_->ports().health))};
  std::vector<std::unique_ptr<Watch>> watches;
  for (int i = 0; i < HealthService::kMostWatchesOfStrangers; ++i) {
    watches.push_back(watch(strangers[static_cast<size_t>(i) % strangers.size()]));
    ASSERT_TRUE(is_told(*watches.back())) << i;
  }
  for (const auto& channel : strangers) {
    const auto one_more = watch(channel);
    EXPECT_FALSE(is_told(*one_more));
    EXPECT_EQ(one_more->reader->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  const auto known = watch(Channel(Certificates().Client("worker-alice")));
  EXPECT_TRUE(is_told(*known));
  // Those who go make room.
  watches.front()->context.TryCancel();
  watches.front()->reader->Finish();
  EXPECT_EQ(AwaitCode(StatusCode::kOk,
                      [&] {
                        const auto another = watch(strangers.front());
                        return is_told(*another) ? absl::OkStatus()
                                                 : FromGrpcStatus(another->reader->Finish());
                      }),
            StatusCode::kOk);
  for (const auto& one : watches) one->context.TryCancel();
  known->context.TryCancel();
}

TEST_F(SecurityTest, RefusedCallsAreCountedAndMadeUpMethodsAreNoNewLabels) {
  const auto nobody = Channel(Certificates().Client(""));
  EXPECT_EQ(CallRaw(nobody, "DeleteJob", "").code(), StatusCode::kUnauthenticated);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(CallRaw(nobody, absl::StrCat("MadeUp", i), "").code(), StatusCode::kUnauthenticated);
  }
  const auto viewer = Channel(Certificates().Client("viewer"));
  EXPECT_EQ(CallRaw(viewer, "DeleteJob", "").code(), StatusCode::kPermissionDenied);
  const std::string text = server_->metrics().Text();
  EXPECT_THAT(text,
              HasSubstr("penstock_rpcs_refused_total{code=\"UNAUTHENTICATED\",method=\"DeleteJob\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("penstock_rpcs_refused_total{code=\"UNAUTHENTICATED\",method=\"other\"} 20\n"));
  EXPECT_THAT(text,
              HasSubstr("penstock_rpcs_refused_total{code=\"PERMISSION_DENIED\",method=\"DeleteJob\"} 1\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("MadeUp")));
}

TEST_F(SecurityTest, WhoDoesNotEncryptIsNotServed) {
  EXPECT_THAT(CallRaw(CreateClientChannel(address()), "ListJobs", "", absl::Seconds(3)),
              Fails(StatusCode::kUnavailable, ""));
}

TEST_F(SecurityTest, ACertificateThatIsOverOrOfAnotherAuthorityIsNotLetIn) {
  Certificates().MakeCaller("client", "late", /*days=*/-1);
  // Penstock's own clients do not even begin with one that is over.
  const ClientSecurity late = Certificates().Client("client-late");
  const ChannelSecurity unchecked = {.credentials =
                                         grpc::SslCredentials({*ReadFile(late.authority), *ReadFile(late.key),
                                                               *ReadFile(late.certificate)})};
  EXPECT_THAT(CallRaw(CreateClientChannel(address(), {}, Among::kLeader, unchecked), "ListJobs", "",
                      absl::Seconds(3)),
              Fails(StatusCode::kUnavailable, ""));
  TestCertificates foreign;
  foreign.MakeCaller("operator", "");
  ClientSecurity files = Certificates().Client("");
  files.certificate = foreign.Path("operator.crt");
  files.key = foreign.Path("operator.key");
  EXPECT_THAT(CallRaw(Channel(files), "ListJobs", "", absl::Seconds(3)), Fails(StatusCode::kUnavailable, ""));
}

TEST_F(SecurityTest, APlannerOfAnotherAuthorityOrNameIsNotTrusted) {
  const TestCertificates foreign;
  EXPECT_THAT(CallRaw(Channel(foreign.Client("")), "ListJobs", "", absl::Seconds(3)),
              Fails(StatusCode::kUnavailable, ""));
  ClientSecurity files = Certificates().Client("operator");
  files.server_name = "another.test";
  EXPECT_THAT(CallRaw(Channel(files), "ListJobs", "", absl::Seconds(3)), Fails(StatusCode::kUnavailable, ""));
  files.server_name = "planner.test";
  EXPECT_TRUE(CallRaw(Channel(files), "ListJobs", "").ok());
}

TEST_F(SecurityTest, JobsAreTheirOwnersAlone) {
  ASSERT_TRUE(RegisterAs(As("client-alice"), "of-alice").ok());
  ASSERT_TRUE(RegisterAs(As("operator"), "of-all").ok());
  for (const char* caller : {"client-bob", "worker-bob"}) {
    EXPECT_THAT(Get(As(caller), "of-alice"), Fails(StatusCode::kPermissionDenied, "of-alice")) << caller;
    EXPECT_TRUE(Get(As(caller), "of-all").ok()) << caller;
    EXPECT_THAT(JobsOf(As(caller)), testing::ElementsAre("of-all")) << caller;
  }
  for (const char* caller : {"client-alice", "worker-alice", "viewer", "viewer-alice", "operator"}) {
    EXPECT_TRUE(Get(As(caller), "of-alice").ok()) << caller;
    EXPECT_THAT(JobsOf(As(caller)), testing::ElementsAre("of-alice", "of-all")) << caller;
  }
  EXPECT_THAT(As("client-bob").SubmitBatches(MakeSubmission("of-alice", 0, 1)),
              Fails(StatusCode::kPermissionDenied, "of-alice"));
  v1::RegisterWorkerRequest worker = MakeRegistration(1, 0);
  worker.set_job_id("of-alice");
  EXPECT_THAT(As("worker-bob").RegisterWorker(worker), Fails(StatusCode::kPermissionDenied, "of-alice"));
  v1::PlanBatchRequest plan;
  plan.set_job_id("of-alice");
  *plan.mutable_batch() = MakeBatch(0);
  EXPECT_THAT(As("client-bob").PlanBatch(plan), Fails(StatusCode::kPermissionDenied, "of-alice"));
  v1::StreamProgramsRequest stream;
  stream.set_job_id("of-alice");
  EXPECT_THAT(As("worker-bob").StreamPrograms(stream, kPatience)->Next(),
              Fails(StatusCode::kPermissionDenied, "of-alice"));
  v1::DeleteJobRequest remove;
  remove.set_job_id("of-alice");
  EXPECT_THAT(As("client-bob").DeleteJob(remove), Fails(StatusCode::kPermissionDenied, "of-alice"));
  EXPECT_TRUE(As("client-alice").DeleteJob(remove).ok());
}

TEST_F(SecurityTest, NobodyRegistersAJobForSomebodyElse) {
  EXPECT_THAT(RegisterAs(As("client-alice"), "job", "bob"),
              Fails(StatusCode::kPermissionDenied, "job.owner"));
  EXPECT_TRUE(RegisterAs(As("client-alice"), "job", "alice").ok());
  // The same job again is the same job; another's of that name is another.
  EXPECT_TRUE(RegisterAs(As("client-alice"), "job").ok());
  EXPECT_THAT(RegisterAs(As("client-bob"), "job"), Fails(StatusCode::kAlreadyExists, "job.job_id"));
  EXPECT_TRUE(RegisterAs(As("operator"), "given", "bob").ok());
  EXPECT_TRUE(Get(As("client-bob"), "given").ok());
}

TEST_F(SecurityTest, TokensStandForCertificatesAndAreReadAgain) {
  ServerSecurity security = Certificates().Server();
  security.client_authority.clear();
  security.tokens = Certificates().Write(
      "tokens", absl::StrCat(kAliceToken, " client alice  # who\n\n", kViewerToken, " viewer\n"));
  Serve({.security = security});
  EXPECT_TRUE(RegisterAs(WithToken(kAliceToken), "job").ok());
  EXPECT_TRUE(Get(WithToken(kViewerToken), "job").ok());
  EXPECT_THAT(RegisterAs(WithToken(kViewerToken), "other"), Fails(StatusCode::kPermissionDenied, "viewer"));
  EXPECT_THAT(Get(WithToken("guess-0123456789abcdef"), "job"), Fails(StatusCode::kUnauthenticated, "GetJob"));
  // A certificate says nothing where nobody signs callers.
  EXPECT_THAT(Get(As("operator"), "job"), Fails(StatusCode::kUnauthenticated, "GetJob"));
  // A slip keeps everybody in; a line that is gone does not.
  Certificates().Write("tokens", "short client alice\n");
  EXPECT_TRUE(Get(WithToken(kAliceToken), "job").ok());
  Certificates().Write("tokens", absl::StrCat(kViewerToken, " viewer\n"));
  EXPECT_EQ(AwaitCode(StatusCode::kUnauthenticated, [&] { return Get(WithToken(kAliceToken), "job"); }),
            StatusCode::kUnauthenticated);
  EXPECT_TRUE(Get(WithToken(kViewerToken), "job").ok());
}

// While somebody calls all the time.
TEST_F(SecurityTest, CertificatesAreReadAgainAndNoCallIsLost) {
  TestCertificates certificates;
  certificates.MakeCaller("operator", "");
  Serve({.security = certificates.Server()});
  PlannerClient caller(Channel(certificates.Client("operator")));
  std::atomic<bool> end = false;
  std::atomic<int> calls = 0;
  std::atomic<int> failures = 0;
  std::thread load([&] {
    while (!end) {
      ++calls;
      if (!caller.ListJobs().ok()) ++failures;
    }
  });
  const std::string before = PlannersCertificate(Channel(certificates.Client("operator")));
  certificates.RenewPlanner();
  const absl::Time last = absl::Now() + kPatience;
  std::string after = before;
  while (after == before && absl::Now() < last) {
    after = PlannersCertificate(Channel(certificates.Client("operator")));
  }
  end = true;
  load.join();
  EXPECT_NE(before, "");
  EXPECT_NE(after, before);
  EXPECT_GT(calls, 0);
  EXPECT_EQ(failures, 0);
}

TEST(SecurityFlagsTest, FilesThatDoNotGoTogetherAreNamed) {
  FakeBatchPlannerFactory planners;
  FakePlanChecker checker;
  const auto start = [&](const ServerSecurity& security, const std::string& listen = "127.0.0.1:0") {
    return PlannerServer::Start({.listen = listen, .security = security}, &planners, &checker).status();
  };
  const ServerSecurity good = Certificates().Server();
  ServerSecurity security = good;
  security.key.clear();
  EXPECT_THAT(start(security), Fails(StatusCode::kInvalidArgument, "--tls-key"));
  security = good;
  security.key = security.certificate;
  EXPECT_THAT(start(security), Fails(StatusCode::kInvalidArgument, "--tls-key: "));
  security = good;
  security.client_authority = "/nowhere/ca.crt";
  EXPECT_THAT(start(security), Fails(StatusCode::kNotFound, "--tls-client-ca"));
  security = {};
  security.tokens = "/nowhere/tokens";
  EXPECT_THAT(start(security), Fails(StatusCode::kInvalidArgument, "--tokens needs --tls-cert"));
  security = good;
  for (const auto& [text, wrong] :
       {std::pair("short client", "line 1: a token has"),
        std::pair("\n0123456789abcdef king", "line 2: a role is"),
        std::pair("0123456789abcdef client a/b", "line 1: an owner is"),
        std::pair("0123456789abcdef", "line 1: use TOKEN ROLE"), std::pair("# nothing", "holds no token")}) {
    security.tokens = Certificates().Write("wrong-tokens", text);
    const absl::Status status = start(security);
    EXPECT_THAT(status, Fails(StatusCode::kInvalidArgument, wrong));
    EXPECT_THAT(std::string(status.message()), HasSubstr("--tokens"));
    EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr("0123456789abcdef")));
  }
  EXPECT_THAT(start({}, "0.0.0.0:0"), Fails(StatusCode::kInvalidArgument, "--allow-anyone"));
  EXPECT_TRUE(start(good, "0.0.0.0:0").ok());
}

TEST(SecurityFlagsTest, ACallersFilesThatDoNotGoTogetherAreNamed) {
  const ClientSecurity good = Certificates().Client("operator");
  EXPECT_TRUE(SecurityOfChannels(good).ok());
  EXPECT_TRUE(SecurityOfChannels({}).ok());
  ClientSecurity files = good;
  files.authority.clear();
  EXPECT_THAT(SecurityOfChannels(files), Fails(StatusCode::kInvalidArgument, "--tls-cert needs --tls-ca"));
  files = good;
  files.key.clear();
  EXPECT_THAT(SecurityOfChannels(files), Fails(StatusCode::kInvalidArgument, "--tls-key"));
  files = good;
  files.authority = good.key;
  EXPECT_THAT(SecurityOfChannels(files), Fails(StatusCode::kInvalidArgument, "--tls-ca: "));
  files = good;
  files.token = Certificates().Write("two-tokens", "0123456789abcdef 0123456789abcdef");
  EXPECT_THAT(SecurityOfChannels(files), Fails(StatusCode::kInvalidArgument, "--token-file"));
}

}  // namespace
}  // namespace penstock
