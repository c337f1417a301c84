#include "planner/cli/up/host_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/files/files.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"

namespace penstock::cli {
namespace {

constexpr uint32_t kMostSlots = 1024;

// What ssh takes for a host, and the worker for an address; nothing that a shell or ssh reads otherwise.
bool IsHostName(absl::string_view name) {
  return name.front() != '-' && std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':';
         });
}

// "node-a slots=4"; the words of a line that has some.
absl::StatusOr<WorkerHost> ParseHost(const std::vector<std::string>& words) {
  WorkerHost host{.name = words.front()};
  if (!IsHostName(host.name)) {
    return absl::InvalidArgumentError(absl::StrCat("'", host.name, "' is no host name or address"));
  }
  for (size_t i = 1; i < words.size(); ++i) {
    absl::string_view slots = words[i];
    const bool known = i == 1 && absl::ConsumePrefix(&slots, "slots=");
    if (known && absl::SimpleAtoi(slots, &host.slots) && host.slots >= 1 && host.slots <= kMostSlots)
      continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", words[i], "': expected HOST [slots=N], with N from 1 to ", kMostSlots));
  }
  return host;
}

}  // namespace

absl::StatusOr<std::vector<WorkerHost>> ParseHosts(absl::string_view file, absl::string_view text) {
  std::vector<WorkerHost> hosts;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    line = line.substr(0, line.find('#'));
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    const std::string place = absl::StrCat("--hosts '", file, "' line ", line_number);
    absl::StatusOr<WorkerHost> host = ParseHost(words);
    if (!host.ok()) return AnnotateError(host.status(), place);
    const auto same = [&](const WorkerHost& other) { return other.name == host->name; };
    if (std::any_of(hosts.begin(), hosts.end(), same)) {
      return absl::InvalidArgumentError(
          absl::StrCat(place, ": '", host->name, "' is there twice: say slots=N in one line"));
    }
    hosts.push_back(*std::move(host));
  }
  if (!hosts.empty()) return hosts;
  return absl::InvalidArgumentError(absl::StrCat("--hosts '", file, "' names no host"));
}

absl::StatusOr<std::vector<WorkerHost>> ReadHostFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return AnnotateError(text.status(), "--hosts");
  return ParseHosts(path, *text);
}

absl::StatusOr<std::vector<std::string>> HostOfEachRank(const std::vector<WorkerHost>& hosts,
                                                        uint32_t ranks) {
  std::vector<std::string> of_ranks;
  for (const WorkerHost& host : hosts) {
    for (uint32_t slot = 0; slot < host.slots && of_ranks.size() < ranks; ++slot)
      of_ranks.push_back(host.name);
  }
  if (of_ranks.size() == ranks) return of_ranks;
  return absl::InvalidArgumentError(
      absl::StrCat("--hosts has ", of_ranks.size(), " slots for ", ranks,
                   " workers (--pp x --dp x --cp x --tp): add hosts or slots=N"));
}

bool IsThisMachine(absl::string_view name) {
  return name == "localhost" || name == "::1" || absl::StartsWith(name, "127.");
}

}  // namespace penstock::cli
