#include "common/http/http_server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <future>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/net/listening.h"

namespace penstock {
namespace {

constexpr int kNotModified = 304;
constexpr int kForbidden = 403;
constexpr int kMethodNotAllowed = 405;
constexpr size_t kLongestParameter = 1024;
// Who is slower than this is cut off, so that those who hold all threads do not hold the server for long.
constexpr const char* kThreads = "64";
constexpr const char* kRequestTimeoutMs = "500";
constexpr const char* kRequestBytes = "16384";

const char* OrEmpty(const char* text) { return text == nullptr ? "" : text; }

// "localhost:8080", "127.0.0.1", "[::1]:8080". No Host at all is a client that is no browser.
bool IsLocalName(absl::string_view host) {
  if (host.empty()) return true;
  const size_t colon = host.rfind(':');
  const size_t bracket = host.rfind(']');
  const bool has_port =
      colon != absl::string_view::npos && (bracket == absl::string_view::npos || colon > bracket);
  if (has_port) host = host.substr(0, colon);
  in_addr version_4 = {};
  constexpr uint32_t kLoopbackNetwork = 127;
  const bool is_loopback = inet_pton(AF_INET, std::string(host).c_str(), &version_4) == 1 &&
                           ntohl(version_4.s_addr) >> 24 == kLoopbackNetwork;
  return is_loopback || host == "[::1]" || absl::EqualsIgnoreCase(host, "localhost");
}

absl::string_view ReasonOf(int status) { return OrEmpty(mg_get_response_code_text(nullptr, status)); }

// HEAD gets the same without the body.
void Send(mg_connection* connection, const HttpAnswer& answer, bool with_body) {
  std::string text = absl::StrCat("HTTP/1.1 ", answer.status, " ", ReasonOf(answer.status), "\r\n",
                                  "Content-Type: ", answer.content_type, "\r\n",
                                  "X-Content-Type-Options: nosniff\r\n", "Connection: close\r\n");
  // Of what is known already it would be the length of what is not sent.
  if (answer.status != kNotModified) absl::StrAppend(&text, "Content-Length: ", answer.body.size(), "\r\n");
  for (const auto& [name, value] : answer.headers) absl::StrAppend(&text, name, ": ", value, "\r\n");
  absl::StrAppend(&text, "\r\n", with_body ? answer.body : "");
  mg_write(connection, text.data(), text.size());
}

// Connects to the port of this machine and hangs up.
void Knock(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // Whether somebody answers is no matter.
  static_cast<void>(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)));
  close(fd);
}

// civetweb looks whether it is to stop when somebody connects, and every two seconds.
void Stop(mg_context* context) {
  mg_server_port bound = {};
  mg_get_server_ports(context, 1, &bound);
  std::promise<void> done;
  std::thread stopper([&] {
    mg_stop(context);
    done.set_value();
  });
  const std::future<void> stopped = done.get_future();
  while (stopped.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) Knock(bound.port);
  stopper.join();
}

}  // namespace

struct HttpServer::Impl {
  Impl(const HttpServerOptions& its_options, HttpHandler its_handler)
      : options(its_options), handler(std::move(its_handler)) {
    mg_init_library(MG_FEATURES_DEFAULT);
  }
  ~Impl() {
    if (context != nullptr) Stop(context);
    mg_exit_library();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  HttpAnswer Answer(const mg_request_info& request, const mg_connection* connection) const;
  // civetweb's handler: answers 1, for "done".
  static int Handle(mg_connection* connection, void* impl);

  const HttpServerOptions options;
  const HttpHandler handler;
  mg_context* context = nullptr;
};

HttpAnswer HttpServer::Impl::Answer(const mg_request_info& request, const mg_connection* connection) const {
  const absl::string_view method = OrEmpty(request.request_method);
  if (method != "GET" && method != "HEAD") {
    HttpAnswer refused = HttpAnswer::Error(kMethodNotAllowed, "only GET and HEAD are answered here");
    refused.headers.emplace_back("Allow", "GET, HEAD");
    return refused;
  }
  if (options.local_names_only && !IsLocalName(OrEmpty(mg_get_header(connection, "Host")))) {
    return HttpAnswer::Error(kForbidden,
                             "this page answers to names of this machine only: use 127.0.0.1 or localhost");
  }
  return handler({.path = OrEmpty(request.local_uri_raw),
                  .query = OrEmpty(request.query_string),
                  .known_tag = OrEmpty(mg_get_header(connection, "If-None-Match"))});
}

int HttpServer::Impl::Handle(mg_connection* connection, void* impl) {
  const mg_request_info& request = *mg_get_request_info(connection);
  const auto& server = *static_cast<const Impl*>(impl);
  Send(connection, server.Answer(request, connection),
       /*with_body=*/absl::string_view(OrEmpty(request.request_method)) != "HEAD");
  return 1;
}

std::optional<std::string> HttpRequest::Parameter(const std::string& name) const {
  std::array<char, kLongestParameter + 1> value = {};
  const int length = mg_get_var(query.data(), query.size(), name.c_str(), value.data(), value.size());
  if (length < 0) return std::nullopt;
  return std::string(value.data(), static_cast<size_t>(length));
}

HttpAnswer HttpAnswer::Error(int status, absl::string_view text) {
  return {.status = status, .body = absl::StrCat(text, "\n")};
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl, int port) : impl_(std::move(impl)), port_(port) {}
HttpServer::~HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                              HttpHandler handler) {
  auto impl = std::make_unique<Impl>(options, std::move(handler));
  const std::array<const char*, 13> settings = {"listening_ports",
                                                options.listen.c_str(),
                                                "num_threads",
                                                kThreads,
                                                "request_timeout_ms",
                                                kRequestTimeoutMs,
                                                "max_request_size",
                                                kRequestBytes,
                                                "enable_keep_alive",
                                                "no",
                                                "enable_directory_listing",
                                                "no",
                                                nullptr};
  const mg_callbacks callbacks = {};
  impl->context = mg_start(&callbacks, nullptr, const_cast<const char**>(settings.data()));
  mg_server_port bound = {};
  if (impl->context == nullptr || mg_get_server_ports(impl->context, 1, &bound) < 1)
    return ListenError(options.listen);
  // The pattern takes every path.
  mg_set_request_handler(impl->context, "**", Impl::Handle, impl.get());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl), bound.port));
}

}  // namespace penstock
