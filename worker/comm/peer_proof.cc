#include "worker/comm/peer_proof.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/hash/hmac_sha256.h"
#include "common/secret/random_secret.h"
#include "common/status/status_macros.h"
#include "worker/comm/cancellation.h"
#include "worker/comm/transfer.h"

namespace penstock::worker {
namespace {

// Of a challenge and of its answer alike.
constexpr int64_t kMessageBytes = 32;
static_assert(kMessageBytes == kSecretBytes);

at::Tensor NewMessage() { return at::empty({kMessageBytes}, at::kByte); }

at::Tensor MessageOf(absl::string_view bytes) {
  at::Tensor message = NewMessage();
  std::memcpy(message.data_ptr(), bytes.data(), kMessageBytes);
  return message;
}

absl::string_view BytesOf(const at::Tensor& message) {
  return {static_cast<const char*>(message.data_ptr()), kMessageBytes};
}

// With one peer.
struct Exchange {
  uint32_t peer = 0;
  std::string own_challenge = {};
  at::Tensor challenge = NewMessage();
  at::Tensor answer = NewMessage();
};

class Prover {
 public:
  Prover(c10d::Backend& backend, const RankGroup& group, const PeerProofOptions& options)
      : backend_(backend), group_(group), options_(options) {}

  absl::Status Run() {
    std::vector<Exchange> exchanges;
    for (const uint32_t peer : group_) {
      if (peer == options_.rank) continue;
      PENSTOCK_ASSIGN_OR_RETURN(std::string challenge, RandomSecret());
      exchanges.push_back({.peer = peer, .own_challenge = std::move(challenge)});
    }
    PENSTOCK_RETURN_IF_ERROR(
        Swap(exchanges, [](Exchange& with) { return std::pair(with.own_challenge, with.challenge); }));
    PENSTOCK_RETURN_IF_ERROR(Swap(exchanges, [this](Exchange& with) {
      return std::pair(Answer(options_.rank, with.peer, BytesOf(with.challenge), with.own_challenge),
                       with.answer);
    }));
    for (const Exchange& with : exchanges) {
      const std::string expected =
          Answer(with.peer, options_.rank, with.own_challenge, BytesOf(with.challenge));
      if (!IsSameMac(BytesOf(with.answer), expected)) return Refusal(with.peer);
    }
    return absl::OkStatus();
  }

 private:
  // What is sent, and where to receive.
  using Messages = std::function<std::pair<std::string, at::Tensor>(Exchange&)>;

  // Sends to all peers and receives from all, at the same time.
  absl::Status Swap(std::vector<Exchange>& exchanges, const Messages& messages) {
    std::vector<std::unique_ptr<PendingTransfer>> transfers;
    for (Exchange& with : exchanges) {
      const auto [sent, received] = messages(with);
      for (const bool sends : {false, true}) {
        PENSTOCK_ASSIGN_OR_RETURN(auto transfer, Start(with.peer, sends, sends ? MessageOf(sent) : received));
        transfers.push_back(std::move(transfer));
      }
    }
    for (const auto& transfer : transfers) PENSTOCK_RETURN_IF_ERROR(transfer->Wait());
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<PendingTransfer>> Start(uint32_t peer, bool sends,
                                                         const at::Tensor& message) {
    const int position = *PositionIn(group_, peer);
    std::vector<at::Tensor> messages = {message};
    return StartTransfer(absl::StrCat("asking rank ", peer, " to show that it is a worker of this epoch"),
                         message, cancellation_, options_.timeout, [&] {
                           return sends ? backend_.send(messages, position, options_.tag)
                                        : backend_.recv(messages, position, options_.tag);
                         });
  }

  // Of `from` to `to`, which has sent `challenge`.
  std::string Answer(uint32_t from, uint32_t to, absl::string_view challenge,
                     absl::string_view own_challenge) const {
    return HmacSha256(options_.key, absl::StrCat("group ", Describe(group_), "\nfrom ", from, " to ", to,
                                                 "\n", challenge, own_challenge));
  }

  absl::Status Refusal(uint32_t peer) const {
    return absl::UnavailableError(
        absl::StrCat("who connected as rank ", peer, " to the group of ranks ", Describe(group_),
                     " is no worker of this epoch: a stranger reaches the port of rank ", options_.rank,
                     ". Keep the workers' network (--host) to themselves"));
  }

  c10d::Backend& backend_;
  const RankGroup& group_;
  const PeerProofOptions& options_;
  const std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();
};

}  // namespace

absl::Status ProvePeers(c10d::Backend& backend, const RankGroup& group, const PeerProofOptions& options) {
  return Prover(backend, group, options).Run();
}

}  // namespace penstock::worker
