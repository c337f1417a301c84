#include "worker/comm/gloo_group.h"

#include <csignal>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "absl/strings/str_cat.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

// Gloo writes to sockets whose other end may be gone; the default action of SIGPIPE would end this process as
// well.
void IgnoreBrokenPipes() {
  struct sigaction current = {};
  sigaction(SIGPIPE, nullptr, &current);
  if (current.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

c10::intrusive_ptr<c10d::Backend> Join(const CommunicatorOptions& options, const StoreClient& store,
                                       const RankGroup& group) {
  auto gloo_options = c10d::ProcessGroupGloo::Options::create(options.connect_timeout);
  gloo_options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname(options.host)};
  gloo_options->threads = 1;  // for Gloo's own collectives, which are not used
  return c10::make_intrusive<c10d::ProcessGroupGloo>(GroupStore(store, "gloo", group),
                                                     *PositionIn(group, options.rank),
                                                     static_cast<int>(group.size()), gloo_options);
}

}  // namespace

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> JoinGlooGroup(const CommunicatorOptions& options,
                                                                const StoreClient& store,
                                                                const RankGroup& group) {
  IgnoreBrokenPipes();
  auto joined =
      CallTorch(absl::StrCat("joining the group of ranks ", Describe(group), " as rank ", options.rank),
                [&] { return Join(options, store, group); });
  if (!joined.ok()) return absl::UnavailableError(std::string(joined.status().message()));
  return joined;
}

}  // namespace penstock::worker
