// Makes a library's listening socket deaf once all who were expected have come.
//
// Gloo listens as long as a group lives, keeps whoever connects, and ends the process when it cannot accept
// a connection because file descriptors have run out. Its socket cannot be closed from outside; but the
// kernel can be told to drop what arrives on it.
//
//   const std::vector<FileDescriptor> listeners = ListenersOpenedBy([&] { device = MakeDevice(); });
//   ... all peers have connected ...
//   PENSTOCK_RETURN_IF_ERROR(RefuseConnections(listeners));
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/process/file_descriptor.h"

namespace penstock::worker {

// Copies of the descriptors of sockets on which this process listens since `open` ran, and did not before.
// Calls take turns. Nothing else in the process should begin to listen meanwhile: it would be among them.
std::vector<FileDescriptor> ListenersOpenedBy(const std::function<void()>& open);

// From now on no packet that asks for a connection gets through; connections that are there stay. Whoever
// connects is not answered. Possible errors: UNAVAILABLE (the kernel has no socket filters).
absl::Status RefuseConnections(absl::Span<const FileDescriptor> listeners);

}  // namespace penstock::worker
