// Joins ranks 0 and 1 as rank 1, waits for one message and dies at once, as by SIGKILL.
//
// Usage: comm_peer HOST:PORT
#include <ATen/ATen.h>

#include <csignal>
#include <cstdio>

#include "worker/comm/communicator.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  penstock::worker::CommunicatorOptions options;
  options.rank = 1;
  options.world_size = 2;
  options.rendezvous_address = argv[1];
  options.groups = {{0, 1}};
  auto communicator = penstock::worker::MakeGlooCommunicator(options);
  if (!communicator.ok()) {
    std::fprintf(stderr, "comm_peer: %s\n", communicator.status().ToString().c_str());
    return 1;
  }
  auto transfer = (*communicator)->Receive(at::zeros({1}), 0, 0);
  if (!transfer.ok() || !(*transfer)->Wait().ok()) return 1;
  return std::raise(SIGKILL);
}
