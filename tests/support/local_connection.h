// Connections that say nothing by themselves, as strangers open them.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "common/process/file_descriptor.h"

namespace penstock {

// Of a socket that may not block: the connection may be under way afterwards.
inline bool StartConnecting(const FileDescriptor& descriptor, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(descriptor.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
         errno == EINPROGRESS;
}

// A connection to a port of this machine; none where nobody listens.
inline FileDescriptor ConnectToLocalPort(int port) {
  FileDescriptor descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return StartConnecting(descriptor, port) ? std::move(descriptor) : FileDescriptor();
}

}  // namespace penstock
