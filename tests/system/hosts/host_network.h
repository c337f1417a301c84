// Several hosts on one machine: network namespaces, each joined to a switch by a cable whose rate can be
// limited and that can be pulled. This process is put beside the switch, in a namespace of its own, so
// nothing of the machine's network is touched, and all is gone when the process is.
//
//   auto network = HostNetwork::Create(/*hosts=*/5);      // before gRPC has started its threads
//   if (!network.ok()) GTEST_SKIP() << network.status();
//   ... start processes with (*network)->PlaceOf(2), which others reach at its address ...
//   (*network)->Pull(2);                                  // a partition: nothing reaches it, and it reaches
//   nobody
//   (*network)->Plug(2);
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/process/child_process.h"
#include "tests/support/temporary_folder.h"
#include "tests/system/harness/cluster.h"

namespace penstock::testing {

class HostNetwork {
 public:
  // At most 200 hosts. Possible errors: UNAVAILABLE where this process may make no network (it takes root and
  // iproute2).
  static absl::StatusOr<std::unique_ptr<HostNetwork>> Create(int hosts);

  const Place& PlaceOf(int host) const { return places_[host]; }

  // What the host sends is no faster than `rate`, as tc writes it ("100mbit"), from now on.
  absl::Status Limit(int host, const std::string& rate);
  // A cable of a host is pulled, and plugged again.
  absl::Status Pull(int host);
  absl::Status Plug(int host);

 private:
  HostNetwork() = default;
  absl::Status MakeSwitch();
  absl::Status AddHost(int host);
  // Runs a command; its output is the error.
  absl::Status Run(std::vector<std::string> command) const;
  absl::Status RunOn(int host, std::vector<std::string> command) const;

  const TemporaryFolder folder_;
  // A process each that does nothing but keep the host's namespace.
  std::vector<std::unique_ptr<ChildProcess>> keepers_;
  std::vector<Place> places_;
};

}  // namespace penstock::testing
