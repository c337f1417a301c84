// store_commit_loop URL: commits the sequence of commit_sequence.h from where the store is, and writes the
// number of each commit to stdout as soon as it was acknowledged. Runs until it is killed.
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "planner/service/store/open/open_event_store.h"
#include "tests/integration/store/commit_sequence.h"

namespace penstock {
namespace {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

int CommitForEver(const std::string& url) {
  const auto store = OpenEventStore(url, {});
  if (!store.ok()) return Fail(store.status());
  for (uint64_t i = CheckCommits(store->get()) + 1;; ++i) {
    const absl::Status status = (*store)->Commit(CommitOf(i));
    if (!status.ok()) return Fail(status);
    // One call of write: whole or not there.
    std::fputs(absl::StrCat(i, "\n").c_str(), stdout);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return argc == 2 ? penstock::CommitForEver(argv[1]) : 2; }
