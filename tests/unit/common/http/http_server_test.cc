#include "common/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/support/http_exchange.h"
#include "tests/support/shortest_time.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using absl::StatusCode;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// Says what it was asked for.
HttpAnswer Echo(const HttpRequest& request) {
  if (request.path == "/missing") return HttpAnswer::Error(404, "there is no such page");
  return {.body = absl::StrCat("path ", request.path, ", name ", request.Parameter("name").value_or("none"),
                               ", tag ", request.known_tag),
          .headers = {{"X-Test", "yes"}}};
}

class HttpServerTest : public testing::Test {
 protected:
  void Serve(const HttpServerOptions& options = {.listen = "127.0.0.1:0"}) {
    auto server = HttpServer::Start(options, Echo);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string Get(const std::string& path, const std::string& headers = "") const {
    return HttpAnswerTo(server_->port(), "GET", path, headers);
  }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersWithStatusLengthAndHeaders) {
  Serve();
  const std::string answer = Get("/page");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 27\r\n"));
  EXPECT_THAT(answer, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(answer, HasSubstr("X-Test: yes\r\n"));
  EXPECT_EQ(BodyOf(answer), "path /page, name none, tag ");
}

TEST_F(HttpServerTest, ParametersAreDecoded) {
  Serve();
  EXPECT_THAT(BodyOf(Get("/?other=1&name=a%20b%3C%26")), HasSubstr("name a b<&"));
  EXPECT_THAT(BodyOf(Get("/?name=")), HasSubstr("name ,"));
  EXPECT_THAT(BodyOf(Get("/?names=1")), HasSubstr("name none"));
}

TEST_F(HttpServerTest, AParameterOfMoreThanAKibibyteIsNotThere) {
  Serve();
  EXPECT_THAT(BodyOf(Get(absl::StrCat("/?name=", std::string(1024, 'x')))), HasSubstr("name xxx"));
  EXPECT_THAT(BodyOf(Get(absl::StrCat("/?name=", std::string(1025, 'x')))), HasSubstr("name none"));
}

TEST_F(HttpServerTest, HeadIsAnsweredAsGetWithoutTheBody) {
  Serve();
  const std::string answer = HttpAnswerTo(server_->port(), "HEAD", "/page");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 27\r\n"));
  EXPECT_THAT(BodyOf(answer), IsEmpty());
}

TEST_F(HttpServerTest, MethodsThatChangeThingsAreRefused) {
  Serve();
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
    const std::string answer = HttpAnswerTo(server_->port(), method, "/page", "Content-Length: 0\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 ")) << method;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n")) << method;
  }
}

TEST_F(HttpServerTest, ErrorsOfTheHandlerAreSent) {
  Serve();
  EXPECT_THAT(Get("/missing"), StartsWith("HTTP/1.1 404 Not Found\r\n"));
}

TEST_F(HttpServerTest, NoPathLeadsToAFile) {
  Serve();
  for (const char* path :
       {"/../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "//etc/passwd"}) {
    EXPECT_THAT(Get(path), Not(HasSubstr("root:"))) << path;
  }
}

TEST_F(HttpServerTest, WhatIsNoRequestEndsWithAnErrorAndHarmsNobody) {
  Serve();
  for (const std::string& nonsense :
       {std::string("nonsense\r\n\r\n"), std::string("GET\r\n\r\n"), std::string("\0\1\2\3\r\n\r\n", 8),
        std::string("GET / HTTP/9.9\r\n\r\n")}) {
    EXPECT_THAT(ExchangeHttp(server_->port(), nonsense),
                AnyOf(IsEmpty(), ContainsRegex("^HTTP/[0-9.]+ [45]")));
  }
  EXPECT_THAT(Get("/page"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(HttpServerTest, ARequestWithoutEndIsRefusedBySize) {
  Serve();
  const std::string headers = absl::StrCat("X-Long: ", std::string(100'000, 'x'), "\r\n");
  EXPECT_THAT(Get("/page", headers), Not(HasSubstr(" 200 ")));
  EXPECT_THAT(Get("/page"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(HttpServerTest, LocalNamesAloneReachAServerThatAsksForThem) {
  Serve({.listen = "127.0.0.1:0", .local_names_only = true});
  for (const char* host :
       {"localhost", "localhost:8080", "127.0.0.1:1", "127.0.0.2", "[::1]:8080", "LOCALHOST"})
    EXPECT_THAT(Get("/page", absl::StrCat("Host: ", host, "\r\n")), StartsWith("HTTP/1.1 200 ")) << host;
  for (const char* host :
       {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "[::2]:80"})
    EXPECT_THAT(Get("/page", absl::StrCat("Host: ", host, "\r\n")), StartsWith("HTTP/1.1 403 ")) << host;
}

TEST_F(HttpServerTest, AnAddressThatCannotBeBoundIsRefused) {
  Serve();
  const std::string taken = absl::StrCat("127.0.0.1:", server_->port());
  EXPECT_THAT(HttpServer::Start({.listen = taken}, Echo), Fails(StatusCode::kUnavailable, taken));
  EXPECT_THAT(HttpServer::Start({.listen = "203.0.113.1:80"}, Echo),
              Fails(StatusCode::kInvalidArgument, "203.0.113.1:80"));
  EXPECT_THAT(HttpServer::Start({.listen = "nowhere"}, Echo),
              Fails(StatusCode::kInvalidArgument, "HOST:PORT"));
}

TEST_F(HttpServerTest, ARequestThatDoesNotEndIsCutOff) {
  Serve();
  EXPECT_THAT(ExchangeHttp(server_->port(), "GET /page HTTP/1.0\r\n"), Not(HasSubstr(" 200 ")));
  EXPECT_THAT(Get("/page"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(HttpServerTest, StopsAtOnce) {
  const absl::Duration taken = ShortestTime([this] {
    Serve();
    Get("/page");
    const absl::Time start = absl::Now();
    server_.reset();
    return absl::Now() - start;
  });
  EXPECT_LT(taken, absl::Seconds(1)) << "civetweb by itself takes two";
}

}  // namespace
}  // namespace penstock
