// A small read-only HTTP server: pages for people, and the data that they show.
//
//   const HttpHandler handler = [](const HttpRequest& request) {
//     return request.path == "/" ? HttpAnswer{.body = "hello"} : HttpAnswer::Error(404, "no such page");
//   };
//   PENSTOCK_ASSIGN_OR_RETURN(auto server, HttpServer::Start({.listen = "127.0.0.1:0"}, handler));
//   // curl http://127.0.0.1:<server->port()>/
//
// This is the one place that knows civetweb, which parses requests, bounds their size and the time that they
// take, and turns whoever is too many away. Requests change nothing: other methods than GET and HEAD are
// answered with 405, and bodies are not read.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

struct HttpRequest {
  // Decoded, beginning with '/'. As it came: "/../x" is a path that nobody has.
  std::string path;
  // Not decoded; what follows the '?'.
  std::string query;
  // Of the header If-None-Match.
  std::string known_tag;

  // The value of `name` in the query, decoded; nothing where it is not there, or too long (1 KiB).
  std::optional<std::string> Parameter(const std::string& name) const;
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
  // More headers.
  std::vector<std::pair<std::string, std::string>> headers = {};

  // A line of text.
  static HttpAnswer Error(int status, absl::string_view text);
};

// Called by several threads at a time.
using HttpHandler = std::function<HttpAnswer(const HttpRequest&)>;

struct HttpServerOptions {
  // "host:port", port 0 for a free one.
  std::string listen;
  // Answers only requests whose Host is a name of this machine's local address: a page from elsewhere whose
  // name was made to lead here ("DNS rebinding") reads nothing.
  bool local_names_only = false;
};

class HttpServer {
 public:
  // Serves when it returns. Possible errors: those of ListenError.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                           HttpHandler handler);
  // Waits for requests that are answered.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl, int port);
  const std::unique_ptr<Impl> impl_;
  const int port_;
};

}  // namespace penstock
