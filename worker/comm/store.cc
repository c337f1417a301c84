#include "worker/comm/store.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/secret/derived_key.h"
#include "common/secret/sealed_values.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/comm/guarded_store.h"
#include "worker/comm/meeting.h"
#include "worker/comm/table_store.h"
#include "worker/rendezvous/table_server.h"
#include "worker/torch/boundary.h"

namespace penstock::worker {
namespace {

absl::StatusOr<TableAddress> ParseAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 || !absl::SimpleAtoi(text.substr(colon + 1), &port) ||
      port == 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("rendezvous_address: '", text, "', expected host:port with a port from 1 to 65535"));
  }
  return TableAddress{.host = text.substr(0, colon), .port = static_cast<uint16_t>(port)};
}

class ServedTable : public StoreServer {
 public:
  explicit ServedTable(std::unique_ptr<TableServer> server) : server_(std::move(server)) {}
  uint16_t port() const override { return server_->port(); }

 private:
  std::unique_ptr<TableServer> server_;
};

std::string PurposeOf(const char* use, const CommunicatorOptions& options) {
  return absl::StrCat(use, " of epoch ", options.epoch);
}

SealedValues Sealing(const CommunicatorOptions& options) {
  return {options.secret, PurposeOf("rendezvous", options)};
}

// Rank 0 waits for this key of each rank.
std::string JoinedKey(uint32_t rank) { return absl::StrCat("joined ", rank); }

// Whatever goes wrong with the store is a matter of the network.
absl::Status StoreError(const absl::Status& status) {
  return absl::IsCancelled(status) ? status : absl::UnavailableError(std::string(status.message()));
}

// How long it may take to notice that nobody waits any more.
constexpr std::chrono::milliseconds kWaitAtOnce{500};

}  // namespace

absl::StatusOr<std::unique_ptr<StoreServer>> StoreServer::Start(const std::string& host,
                                                                const std::string& secret) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<TableServer> server, TableServer::Start(host, secret));
  return std::make_unique<ServedTable>(std::move(server));
}

absl::StatusOr<StoreClient> ConnectStore(const CommunicatorOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const TableAddress address, ParseAddress(options.rendezvous_address));
  auto store = CallTorch("meeting the other ranks", [&] {
    auto table =
        OpenTableStore({.address = address, .secret = options.secret, .timeout = options.connect_timeout});
    return StoreClient(c10::make_intrusive<c10d::PrefixStore>(
        absl::StrCat("epoch ", options.epoch), GuardStore(std::move(table), Sealing(options))));
  });
  if (!store.ok()) return StoreError(store.status());
  return store;
}

absl::Status AwaitKeys(const StoreClient& store, const std::vector<std::string>& keys,
                       std::chrono::milliseconds patience,
                       const std::function<absl::Status()>& still_wanted) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const auto at_once = std::clamp(left, std::chrono::milliseconds(1), kWaitAtOnce);
    if (RunTorch("waiting", [&] { store->wait(keys, at_once); }).ok()) return absl::OkStatus();
    // A store that is gone says so here, too.
    const absl::StatusOr<bool> there =
        CallTorch("waiting for other ranks", [&] { return store->check(keys); });
    if (!there.ok()) return StoreError(there.status());
    if (*there) return absl::OkStatus();
    if (const absl::Status wanted = still_wanted(); !wanted.ok())
      return absl::CancelledError(wanted.message());
    if (left <= at_once)
      return absl::DeadlineExceededError(absl::StrCat("not within ", patience.count(), " ms"));
  }
}

absl::Status AwaitAllJoined(const CommunicatorOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const StoreClient store, ConnectStore(options));
  const absl::Status said = RunTorch("saying that the groups are joined",
                                     [&] { store->set(JoinedKey(options.rank), std::string("joined")); });
  if (!said.ok()) return StoreError(said);
  if (options.rank != 0) return absl::OkStatus();
  std::vector<std::string> keys;
  for (uint32_t rank = 0; rank < options.world_size; ++rank) keys.push_back(JoinedKey(rank));
  // Others may still be at any of their groups, which are about as many, or at those of their passes.
  const int of_passes = options.passes.place.ranks() > 1 ? 2 : 0;
  const auto patience =
      LongestMeeting(options.connect_timeout) * (static_cast<int>(options.groups.size()) + 1 + of_passes);
  absl::Status met = AwaitKeys(store, keys, patience, options.still_wanted);
  if (met.ok()) {
    met = RunTorch("what ranks say", [&] {
      for (const std::string& key : keys) store->get(key);
    });
  }
  return met.ok() ? met : StoreError(AnnotateError(met, "waiting for all ranks to join their groups"));
}

std::string PeerKey(const CommunicatorOptions& options) {
  return DeriveKey(options.secret, PurposeOf("peers", options));
}

StoreClient GroupStore(const StoreClient& store, const std::string& purpose, const RankGroup& group) {
  return c10::make_intrusive<c10d::PrefixStore>(absl::StrCat(purpose, " ", Describe(group)), store);
}

}  // namespace penstock::worker
