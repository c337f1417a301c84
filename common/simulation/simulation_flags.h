// The flags of a simulated device, the same for `penstock-worker` and `penstock up`.
#pragma once

#include "common/simulation/simulation_options.h"

namespace CLI {
class App;
}

namespace penstock {

// --time-scale, --noise, --noise-seed, --slow-rank, --slow-link, --stall; the last three may be given several
// times. What is set now are the defaults; `options` must outlive the parse. Forms are checked when the flags
// are read, ranges by CheckSimulation.
void AddSimulationFlags(CLI::App& app, SimulationOptions& options);

// Whether any of them was given.
bool SimulationFlagsGiven(const CLI::App& app);

}  // namespace penstock
