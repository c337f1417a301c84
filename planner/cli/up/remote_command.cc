#include "planner/cli/up/remote_command.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace penstock::cli {
namespace {

// Of the program and its arguments as "$@". Descriptor 3 is stdin: a shell gives what it runs in the
// background none.
constexpr char kScript[] =
    R"(exec 3<&0; "$@" 3<&- </dev/null & program=$!; )"
    R"({ while read -r signal <&3; do kill -s "$signal" "$program"; done; kill -s KILL "$program"; } 2>/dev/null & reader=$!; )"
    R"(exec 3<&-; wait "$program"; status=$?; kill "$reader" 2>/dev/null; exit "$status")";

}  // namespace

std::string ShellWord(absl::string_view word) {
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", R"('\'')"}}), "'");
}

std::vector<std::string> RemoteCommand(const std::vector<std::string>& ssh, const std::string& host,
                                       const std::vector<std::string>& command, const std::string& secret) {
  std::vector<std::string> words = ssh;
  for (const char* option :
       {"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"}) {
    words.insert(words.end(), {"-o", option});
  }
  words.push_back(host);
  const auto append = [](std::string* line, const std::string& word) { line->append(ShellWord(word)); };
  const std::string first =
      secret.empty() ? "" : absl::StrCat("IFS= read -r ", secret, "; export ", secret, "; ");
  words.push_back(
      absl::StrCat("sh -c ", ShellWord(first + kScript), " penstock ", absl::StrJoin(command, " ", append)));
  return words;
}

}  // namespace penstock::cli
