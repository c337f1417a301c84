// How long each instruction takes on a simulated device: what the profile that the job came with says, and
// what the options do to it.
#pragma once

#include <cstdint>

#include "common/simulation/simulation_options.h"
#include "worker/program/program.h"

namespace penstock::worker {

// Of one rank. A function of its arguments alone; both ends of a transfer get the same.
class SimulatedDurations {
 public:
  SimulatedDurations(SimulationOptions options, uint32_t rank) : options_(std::move(options)), rank_(rank) {}

  // `instruction` is one of the program's. Nanoseconds, not negative. Of a joint pass: what this rank takes
  // alone.
  int64_t Of(const Program& program, const Instruction& instruction) const;

  // Of a joint pass: how much of that it computes. The rest waits for what is exchanged, as the plan says,
  // slowed like all else.
  int64_t ComputingOf(const Program& program, const Instruction& pass) const;

  // What the host takes before it, beyond what there is on any device.
  int64_t HostNs(const Instruction& instruction) const;

 private:
  double FactorOf(const Program& program, const Instruction& instruction) const;
  double StallNs(const Program& program, const Instruction& instruction) const;
  // The product over all slow links whose ends are both in the group.
  double LinkFactor(const std::vector<uint32_t>& group) const;
  // About 1; `key` names what it is for.
  double Noise(std::initializer_list<uint64_t> key) const;

  const SimulationOptions options_;
  const uint32_t rank_;
};

}  // namespace penstock::worker
