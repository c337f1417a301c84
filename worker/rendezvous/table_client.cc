#include "worker/rendezvous/table_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/backoff/backoff.h"
#include "common/hash/hmac_sha256.h"
#include "common/secret/random_secret.h"
#include "common/status/annotate.h"
#include "common/status/status_macros.h"
#include "worker/rendezvous/connection_proof.h"
#include "worker/rendezvous/timed_socket.h"

namespace penstock::worker {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(20);
constexpr absl::Duration kLongestPause = absl::Milliseconds(500);

absl::Status Prove(int socket, const std::string& key, absl::Time deadline) {
  Challenges challenges;
  PENSTOCK_ASSIGN_OR_RETURN(challenges.of_caller, RandomSecret());
  PENSTOCK_ASSIGN_OR_RETURN(challenges.of_table, Receive(socket, kChallengeBytes, deadline));
  PENSTOCK_RETURN_IF_ERROR(
      SendAll(socket, absl::StrCat(challenges.of_caller, CallerProof(key, challenges)), deadline));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string proof, Receive(socket, kProofBytes, deadline));
  if (IsSameMac(proof, TableProof(key, challenges))) return absl::OkStatus();
  return absl::UnavailableError("who listens there is no worker of this epoch");
}

absl::StatusOr<FileDescriptor> ConnectOnce(const TableAddress& address, const std::string& key,
                                           absl::Time deadline) {
  PENSTOCK_ASSIGN_OR_RETURN(FileDescriptor socket, ConnectTo(address.host, address.port, deadline));
  PENSTOCK_RETURN_IF_ERROR(Prove(socket.get(), key, deadline));
  return socket;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TableClient>> TableClient::Connect(const TableAddress& address,
                                                                  const std::string& secret,
                                                                  absl::Duration timeout) {
  const std::string key = ConnectionKey(secret);
  const absl::Time deadline = absl::Now() + timeout;
  Backoff backoff(kFirstPause, kLongestPause);
  while (true) {
    absl::StatusOr<FileDescriptor> socket = ConnectOnce(address, key, deadline);
    if (socket.ok()) return std::unique_ptr<TableClient>(new TableClient(*std::move(socket)));
    const absl::Duration pause = backoff.Next();
    if (absl::Now() + pause >= deadline) {
      return AnnotateError(socket.status(),
                           absl::StrCat("connecting to the rendezvous at ", address.host, ":", address.port,
                                        " within ", absl::FormatDuration(timeout)));
    }
    absl::SleepFor(pause);
  }
}

absl::StatusOr<TableAnswer> TableClient::Call(const TableRequest& request, absl::Duration timeout) {
  if (request.operation == TableOperation::kWait) timeout += absl::Milliseconds(request.number);
  const std::string message = EncodeMessage(request);
  if (message.size() > kMostMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a request to the rendezvous of ", message.size(),
                                                   " bytes, at most ", kMostMessageBytes));
  }
  MutexLock lock(&mutex_);
  if (socket_.get() < 0) return absl::UnavailableError("the connection to the rendezvous is lost");
  absl::StatusOr<TableAnswer> answer = Exchange(message, absl::Now() + timeout);
  // An answer that comes late would be taken for that of the next request.
  if (!answer.ok()) socket_.Close();
  return answer;
}

absl::StatusOr<TableAnswer> TableClient::Exchange(const std::string& message, absl::Time deadline) {
  PENSTOCK_RETURN_IF_ERROR(SendAll(socket_.get(), message, deadline));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string length_bytes, Receive(socket_.get(), kLengthBytes, deadline));
  PENSTOCK_ASSIGN_OR_RETURN(const size_t length, MessageLength(length_bytes));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string content, Receive(socket_.get(), length, deadline));
  return DecodeAnswer(content);
}

}  // namespace penstock::worker
