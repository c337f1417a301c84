// Sockets on which a library listens: makes them deaf, and hears again.
//
// A library's listening socket cannot be closed from outside, but the kernel can be told to drop what arrives
// on it. That is wanted where all who were expected have come (Gloo listens as long as a group lives, and
// keeps whoever connects), and where descriptors are about to run out: neither Gloo nor gRPC survives a
// connection that cannot be accepted.
//
//   const Listeners listeners = ListenersOpenedBy([&] { device = MakeDevice(); });
//   ... all peers have connected ...
//   PENSTOCK_RETURN_IF_ERROR(listeners.Refuse());
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/process/file_descriptor.h"

namespace penstock {

// Move-only. Keeps copies of the descriptors: the ports stay taken until this goes, too.
class Listeners {
 public:
  Listeners() = default;
  explicit Listeners(std::vector<FileDescriptor> sockets) : sockets_(std::move(sockets)) {}

  size_t size() const { return sockets_.size(); }

  // From now on no packet that asks for a connection gets through; connections that are there stay. Whoever
  // connects is not answered. Possible errors: UNAVAILABLE (the kernel has no socket filters).
  absl::Status Refuse() const;
  // Takes that back. Possible errors: UNAVAILABLE.
  absl::Status Hear() const;
  // At most so many connections wait to be accepted. Possible errors: UNAVAILABLE.
  absl::Status LimitWaiting(int connections) const;

 private:
  std::vector<FileDescriptor> sockets_;
};

// Those on which this process listens since `open` ran, and did not before. Calls take turns. Nothing else in
// the process should begin to listen meanwhile: it would be among them.
Listeners ListenersOpenedBy(const std::function<void()>& open);

}  // namespace penstock
