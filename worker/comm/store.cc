#include "worker/comm/store.h"

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
  return absl::UnavailableError(std::string(status.message()));
}

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

absl::Status AwaitAllJoined(const CommunicatorOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const StoreClient store, ConnectStore(options));
  // Others may still be at any of their groups, which are about as many.
  const auto patience = options.connect_timeout * static_cast<int>(options.groups.size() + 1);
  const absl::Status met = RunTorch("waiting for all ranks to join their groups", [&] {
    store->set(JoinedKey(options.rank), std::string("joined"));
    if (options.rank != 0) return;
    std::vector<std::string> keys;
    for (uint32_t rank = 0; rank < options.world_size; ++rank) keys.push_back(JoinedKey(rank));
    store->wait(keys, patience);
    for (const std::string& key : keys) store->get(key);
  });
  return met.ok() ? met : StoreError(met);
}

std::string PeerKey(const CommunicatorOptions& options) {
  return DeriveKey(options.secret, PurposeOf("peers", options));
}

StoreClient GroupStore(const StoreClient& store, const std::string& purpose, const RankGroup& group) {
  return c10::make_intrusive<c10d::PrefixStore>(absl::StrCat(purpose, " ", Describe(group)), store);
}

}  // namespace penstock::worker
