#include "worker/rendezvous/caller_session.h"

#include <optional>
#include <utility>

#include "common/hash/hmac_sha256.h"
#include "common/status/status_macros.h"

namespace penstock::worker {

CallerSession::CallerSession(std::string key, std::string challenge)
    : key_(std::move(key)), challenge_(std::move(challenge)), outgoing_(challenge_) {}

absl::StatusOr<std::vector<TableRequest>> CallerSession::Take(absl::string_view received) {
  received_.append(received.data(), received.size());
  std::vector<TableRequest> requests;
  if (!proven_) {
    if (received_.size() < kChallengeBytes + kProofBytes) return requests;
    PENSTOCK_RETURN_IF_ERROR(CheckProof());
  }
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string> content, TakeMessage(received_));
    if (!content.has_value()) return requests;
    PENSTOCK_ASSIGN_OR_RETURN(TableRequest request, DecodeRequest(*content));
    requests.push_back(std::move(request));
  }
}

absl::Status CallerSession::CheckProof() {
  const Challenges challenges = {.of_table = challenge_, .of_caller = received_.substr(0, kChallengeBytes)};
  if (!IsSameMac(received_.substr(kChallengeBytes, kProofBytes), CallerProof(key_, challenges)))
    return absl::UnauthenticatedError("who connected to the rendezvous is no worker of this epoch");
  received_.erase(0, kChallengeBytes + kProofBytes);
  proven_ = true;
  outgoing_ += TableProof(key_, challenges);
  return absl::OkStatus();
}

}  // namespace penstock::worker
