#include "tests/support/http_exchange.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "tests/support/local_connection.h"

namespace penstock {

std::string ExchangeHttp(int port, const std::string& request) {
  const FileDescriptor connection = ConnectToLocalPort(port);
  const int fd = connection.get();
  const timeval timeout{30, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  std::string answer;
  if (fd >= 0 &&
      send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    std::array<char, 4096> buffer = {};
    for (ssize_t n = read(fd, buffer.data(), buffer.size()); n > 0;
         n = read(fd, buffer.data(), buffer.size()))
      answer.append(buffer.data(), static_cast<size_t>(n));
  }
  return answer;
}

std::string HttpAnswerTo(int port, const std::string& method, const std::string& path,
                         const std::string& headers) {
  return ExchangeHttp(port, absl::StrCat(method, " ", path, " HTTP/1.0\r\n", headers, "\r\n"));
}

std::string BodyOf(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

}  // namespace penstock
