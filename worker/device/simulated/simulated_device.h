// A device that takes the time of each instruction from the plan instead of computing it: a dry run of a
// cluster of any size, with the real programs, executor, reports, failures and messages between ranks.
//
//   PENSTOCK_ASSIGN_OR_RETURN(auto device, MakeSimulatedDevice({.time_scale = 0.1, .slow_ranks =
//   {{3, 1.5}}}));
#pragma once

#include <memory>

#include "common/simulation/simulation_options.h"
#include "worker/device/device.h"

namespace penstock::worker {

// Needs no dataset. The communicator is made before the timer; the options are checked then, when the number
// of ranks is known. Communicates over Gloo.
std::unique_ptr<Device> MakeSimulatedDevice(const SimulationOptions& options);

}  // namespace penstock::worker
