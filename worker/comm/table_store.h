// The table of an epoch (worker/rendezvous) as a c10d store, which is what process groups meet in.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "worker/rendezvous/table_client.h"

namespace penstock::worker {

struct TableStoreOptions {
  TableAddress address = {};
  std::string secret = {};
  // Of connecting, and of getting and waiting where no other time is given.
  std::chrono::milliseconds timeout = {};
};

// Blocks until it is connected. Throws what c10d's stores throw (worker/torch/boundary.h), as its methods do.
c10::intrusive_ptr<c10d::Store> OpenTableStore(const TableStoreOptions& options);

}  // namespace penstock::worker
