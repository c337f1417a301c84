// One connection to the table as the table's end sees it: what to send, and what was asked, of the bytes that
// came. Knows no socket.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/rendezvous/connection_proof.h"
#include "worker/rendezvous/messages.h"

namespace penstock::worker {

class CallerSession {
 public:
  // `key`: ConnectionKey. `challenge`: new for each connection.
  CallerSession(std::string key, std::string challenge);

  // Whether the caller has shown that he has the secret. Until then nothing is kept but a challenge and a
  // proof.
  bool proven() const { return proven_; }

  // What is asked by bytes that have come. After an error the connection is to be closed.
  // Possible errors: UNAUTHENTICATED (the caller has not the secret), INVALID_ARGUMENT (no message).
  absl::StatusOr<std::vector<TableRequest>> Take(absl::string_view received);
  void Answer(const TableAnswer& answer) { outgoing_ += EncodeMessage(answer); }

  // Not sent yet; whoever sends takes from its begin.
  std::string& outgoing() { return outgoing_; }

 private:
  absl::Status CheckProof();

  const std::string key_;
  const std::string challenge_;
  bool proven_ = false;
  std::string received_;
  std::string outgoing_;
};

}  // namespace penstock::worker
