#include "worker/comm/gloo_group.h"

#include <chrono>
#include <csignal>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging/logging.h"
#include "common/process/listeners.h"
#include "common/status/status_macros.h"
#include "worker/comm/meeting.h"
#include "worker/comm/peer_proof.h"
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

// Beyond the sequence numbers of transfers, and beside the tag of rings.
constexpr int kProofTag = (1 << 30) + 1;

// On which this rank waits for its peers.
struct Port {
  decltype(c10d::ProcessGroupGloo::Options::devices)::value_type device;
  Listeners listeners;
};

// Possible errors: FAILED_PRECONDITION: what strangers have no part in, and another attempt does not mend.
absl::StatusOr<Port> OpenPort(const std::string& host) {
  Port port;
  const absl::Status opened = RunTorch("opening a port", [&] {
    port.listeners =
        ListenersOpenedBy([&] { port.device = c10d::ProcessGroupGloo::createDeviceForHostname(host); });
  });
  if (!opened.ok())
    return absl::FailedPreconditionError(absl::StrCat("host: '", host, "': ", opened.message()));
  return port;
}

c10::intrusive_ptr<c10d::Backend> Join(const CommunicatorOptions& options, const StoreClient& store,
                                       const RankGroup& group, const Port& port,
                                       std::chrono::milliseconds limit) {
  auto gloo_options = c10d::ProcessGroupGloo::Options::create(limit);
  gloo_options->devices = {port.device};
  gloo_options->threads = 1;  // for Gloo's own collectives, which are not used
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, *PositionIn(group, options.rank),
                                                     static_cast<int>(group.size()), gloo_options);
}

// Strangers may stay in the queue of a port that cannot be closed; they get no further than that.
void CloseToStrangers(const Listeners& listeners) {
  const absl::Status refused = listeners.Refuse();
  if (!refused.ok()) LogWarning("the port of a group stays open", {{"reason", refused.message()}});
}

// On new ports each time; whoever connected to those before is left behind.
absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> JoinOnce(const CommunicatorOptions& options,
                                                           const StoreClient& store, const RankGroup& group,
                                                           const Attempt& attempt) {
  const auto place = c10::make_intrusive<c10d::PrefixStore>(absl::StrCat("gloo ", attempt.number), store);
  PENSTOCK_ASSIGN_OR_RETURN(const Port port, OpenPort(options.host));
  auto backend = CallTorch("connecting", [&] { return Join(options, place, group, port, attempt.limit); });
  // Whatever Gloo makes of what a stranger says.
  if (!backend.ok()) return absl::UnavailableError(backend.status().message());
  PENSTOCK_RETURN_IF_ERROR(ProvePeers(
      **backend, group,
      {.rank = options.rank, .key = PeerKey(options), .timeout = attempt.limit, .tag = kProofTag}));
  CloseToStrangers(port.listeners);
  return backend;
}

}  // namespace

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> JoinGlooGroup(const CommunicatorOptions& options,
                                                                const StoreClient& store,
                                                                const RankGroup& group,
                                                                const std::string& purpose) {
  IgnoreBrokenPipes();
  const StoreClient meeting_point = GroupStore(store, purpose, group);
  c10::intrusive_ptr<c10d::Backend> backend;
  const absl::Status met = MeetTogether({.store = meeting_point,
                                         .group = group,
                                         .rank = options.rank,
                                         .connect_timeout = options.connect_timeout,
                                         .still_wanted = options.still_wanted},
                                        [&](const Attempt& attempt) {
                                          // Of the attempt before: it went well here, and not elsewhere.
                                          backend.reset();
                                          auto joined = JoinOnce(options, meeting_point, group, attempt);
                                          if (joined.ok()) backend = *std::move(joined);
                                          return joined.status();
                                        });
  if (met.ok()) return backend;
  return absl::Status(absl::IsCancelled(met) ? absl::StatusCode::kCancelled : absl::StatusCode::kUnavailable,
                      absl::StrCat("joining the group of ranks ", Describe(group), " as rank ", options.rank,
                                   ": ", met.message()));
}

}  // namespace penstock::worker
