#include "planner/service/leadership/planner_name.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

bool IsOwn(const std::string& host) {
  return host.empty() || host == "0.0.0.0" || host == "[::]" || host == "*" || host == "localhost" ||
         host == "[::1]" || absl::StartsWith(host, "127.");
}

}  // namespace

std::string DefaultPlannerName(const std::string& listen, int port, const std::string& host_name) {
  const size_t colon = listen.rfind(':');
  const std::string host = colon == std::string::npos ? "" : listen.substr(0, colon);
  return absl::StrCat(IsOwn(host) ? host_name : host, ":", port);
}

}  // namespace penstock
