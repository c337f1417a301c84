#include "common/grpc/targets.h"

#include <arpa/inet.h>

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/logging/logging.h"
#include "common/net/resolve.h"

namespace penstock {
namespace {

struct Endpoint {
  std::string ip;
  std::string port;
  bool version_6 = false;
};

std::string IpOf(const addrinfo& info) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* address =
      info.ai_family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<sockaddr_in6*>(info.ai_addr)->sin6_addr)
          : &reinterpret_cast<sockaddr_in*>(info.ai_addr)->sin_addr;
  inet_ntop(info.ai_family, address, text, sizeof(text));
  return text;
}

// "host:port" or "[::1]:port".
void AddEndpoints(const std::string& address, std::vector<Endpoint>* endpoints) {
  const size_t colon = address.rfind(':');
  const std::string host = WithoutBrackets(address.substr(0, colon));
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  const absl::StatusOr<Addresses> found = Resolve(host.c_str(), port);
  if (!found.ok()) {
    LogWarning("an address is left out", {{"address", address}, {"reason", found.status().message()}});
    return;
  }
  for (const addrinfo* info = found->get(); info != nullptr; info = info->ai_next) {
    endpoints->push_back({IpOf(*info), port, info->ai_family == AF_INET6});
  }
}

// A target is of one version: with any of version 6, those of version 4 are written as such.
std::string ToTarget(const std::vector<Endpoint>& endpoints) {
  const bool any_6 =
      std::any_of(endpoints.begin(), endpoints.end(), [](const Endpoint& one) { return one.version_6; });
  std::vector<std::string> texts;
  for (const Endpoint& one : endpoints) {
    const std::string text =
        any_6 ? absl::StrCat("%5B", one.version_6 ? "" : "::ffff:", one.ip, "%5D:", one.port)
              : absl::StrCat(one.ip, ":", one.port);
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
  }
  return absl::StrCat(any_6 ? "ipv6:" : "ipv4:", absl::StrJoin(texts, ","));
}

// HOST:PORT, with brackets around an address of version 6.
bool IsAddress(absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == 0 || colon == absl::string_view::npos) return false;
  const absl::string_view host = address.substr(0, colon);
  const bool in_brackets = absl::StartsWith(host, "[") && absl::EndsWith(host, "]");
  uint32_t port = 0;
  constexpr uint32_t kLastPort = 65535;
  return absl::SimpleAtoi(address.substr(colon + 1), &port) && port > 0 && port <= kLastPort &&
         (in_brackets || !absl::StrContains(host, ':')) && std::ranges::none_of(host, [](unsigned char c) {
           return absl::ascii_isspace(c) || absl::ascii_iscntrl(c);
         });
}

}  // namespace

std::string WhatIsWrongWithAddresses(const std::string& addresses) {
  if (absl::StrContains(addresses, ":///") || absl::StartsWith(addresses, "unix:")) return "";
  for (absl::string_view part : absl::StrSplit(addresses, ',')) {
    part = absl::StripAsciiWhitespace(part);
    if (!IsAddress(part)) return absl::StrCat("'", part, "': use HOST:PORT, or several with commas between");
  }
  return "";
}

bool NamesSeveral(const std::string& addresses) {
  return absl::StrContains(addresses, ',') || absl::StartsWith(addresses, "dns:///");
}

bool IsLoopback(const std::string& address) {
  if (absl::StartsWith(address, "unix:")) return true;
  const absl::string_view host = absl::string_view(address).substr(0, address.rfind(':'));
  in_addr version_4 = {};
  if (inet_pton(AF_INET, std::string(host).c_str(), &version_4) == 1) {
    constexpr uint32_t kLoopbackNetwork = 127;
    return ntohl(version_4.s_addr) >> 24 == kLoopbackNetwork;
  }
  return host == "localhost" || host == "[::1]";
}

std::string TargetOf(const std::string& addresses) {
  if (!absl::StrContains(addresses, ',')) return addresses;
  std::vector<Endpoint> endpoints;
  std::vector<std::string> names;
  for (absl::string_view part : absl::StrSplit(addresses, ',')) {
    part = absl::StripAsciiWhitespace(part);
    if (!part.empty()) names.emplace_back(part);
  }
  for (const std::string& name : names) AddEndpoints(name, &endpoints);
  if (!endpoints.empty()) return ToTarget(endpoints);
  // gRPC says what is wrong, and tries again.
  return names.empty() ? addresses : absl::StrCat("dns:///", names.front());
}

}  // namespace penstock
