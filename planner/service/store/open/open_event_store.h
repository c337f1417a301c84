// Makes a store from the URL that a flag names:
//
//   memory                       forgotten with the process
//   sqlite:PATH                  one file, for one planner
//   postgres://USER@HOST/NAME    a database, for several planners of which one leads
//
//   PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Lease> lease, OpenLease(url, {.flag = "--store"}));
//   PENSTOCK_ASSIGN_OR_RETURN(Term term, lease->Acquire(own_address));
//   PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<EventStore> store, OpenEventStore(url, {.flag = "--store",
//   .term = term}));
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "planner/service/store/event_store.h"
#include "planner/service/store/lease.h"

namespace penstock {

struct StoreOptions {
  // The flag that gave the URL, for errors.
  std::string flag = "--store";
  // Of the lease; stores that one process alone can open do not look at it.
  Term term = 0;
  // How long a call may take that waits for a server.
  absl::Duration call_timeout = absl::Seconds(5);
  // The same for reading all jobs.
  absl::Duration load_timeout = absl::Seconds(60);
};

struct LeaseOptions {
  std::string flag = "--store";
  // How long the lease is held without being renewed.
  absl::Duration time_to_live = absl::Seconds(6);
  absl::Duration call_timeout = absl::Seconds(3);
};

// INVALID_ARGUMENT, naming the flag, when the URL is none of the above. Opens nothing.
absl::Status CheckStoreUrl(const std::string& url, const std::string& flag);

// Whether several planners may share the store of a URL, so that its lease decides who writes.
bool IsSharedStore(const std::string& url);

// The URL for people, without what is secret in it.
std::string StoreName(const std::string& url);

// Blocks: reads a SQLite file, connects to a server. Possible errors: those of CheckStoreUrl and of
// EventStore.
absl::StatusOr<std::unique_ptr<EventStore>> OpenEventStore(const std::string& url,
                                                           const StoreOptions& options);

// The lease of the same store; one that is always granted (sole_lease.h) where no other process can open it.
absl::StatusOr<std::unique_ptr<Lease>> OpenLease(const std::string& url, const LeaseOptions& options);

}  // namespace penstock
