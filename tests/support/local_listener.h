// Sockets that listen on this machine, for tests that only need somebody to do so.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "common/process/file_descriptor.h"

namespace penstock {

// On a port of 127.0.0.1; 0: any that is free.
inline FileDescriptor ListenLocally(int port = 0) {
  FileDescriptor descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(descriptor.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(descriptor.get(), 16), 0);
  return descriptor;
}

inline uint16_t PortOf(const FileDescriptor& descriptor) {
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  EXPECT_EQ(getsockname(descriptor.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ntohs(address.sin_port);
}

}  // namespace penstock
