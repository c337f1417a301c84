#include "worker/device/simulated/durations.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "worker/program/passes.h"

namespace penstock::worker {
namespace {

constexpr double kNsPerSecond = 1e9;

// SplitMix64's mixing (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// Uniform in (0, 1).
double Uniform(uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

bool Takes(const Instruction& instruction) {
  return instruction.stream == Stream::kCompute && instruction.expected_duration_ns > 0;
}

bool IsTransfer(const Instruction& instruction) {
  return instruction.op == Op::kSend || instruction.op == Op::kRecv;
}

}  // namespace

double SimulatedDurations::Noise(std::initializer_list<uint64_t> key) const {
  if (options_.noise == 0) return 1;
  uint64_t hash = Mix(options_.noise_seed);
  for (const uint64_t part : key) hash = Mix(hash ^ part);
  // Box and Muller's method; log-normal of mean 1, so that it is positive and shifts no average.
  const double normal =
      std::sqrt(-2 * std::log(Uniform(hash))) * std::cos(2 * std::numbers::pi * Uniform(Mix(hash)));
  const double variance = std::log1p(options_.noise * options_.noise);
  return std::exp(std::sqrt(variance) * normal - variance / 2);
}

double SimulatedDurations::LinkFactor(const std::vector<uint32_t>& group) const {
  const auto holds = [&](uint32_t rank) { return std::ranges::find(group, rank) != group.end(); };
  double factor = 1;
  for (const SlowLink& slow : options_.slow_links) {
    if (holds(slow.a) && holds(slow.b)) factor *= slow.factor;
  }
  return factor;
}

double SimulatedDurations::FactorOf(const Program& program, const Instruction& instruction) const {
  if (IsTransfer(instruction)) {
    const Transfer& transfer = program.transfers[instruction.transfer];
    const uint32_t from = instruction.op == Op::kSend ? rank_ : transfer.peer;
    const uint32_t to = instruction.op == Op::kSend ? transfer.peer : rank_;
    return LinkFactor({from, to}) * Noise({1, program.iteration, from, to, transfer.sequence});
  }
  double factor = Noise({0, program.iteration, rank_, instruction.id});
  if (instruction.op == Op::kReduceGradients || instruction.op == Op::kReshard)
    return factor * LinkFactor(program.groups[instruction.group]);
  for (const SlowRank& slow : options_.slow_ranks) {
    if (slow.rank == rank_) factor *= slow.factor;
  }
  return factor;
}

double SimulatedDurations::StallNs(const Program& program, const Instruction& instruction) const {
  double seconds = 0;
  for (const Stall& stall : options_.stalls) {
    if (stall.rank == rank_ && stall.iteration == program.iteration) seconds += stall.seconds;
  }
  if (seconds == 0) return 0;
  const auto first = std::ranges::find_if(program.instructions, Takes);
  return first != program.instructions.end() && first->id == instruction.id ? seconds * kNsPerSecond : 0;
}

int64_t SimulatedDurations::HostNs(const Instruction& instruction) const {
  double seconds = 0;
  for (const HostStall& stall : options_.host_stalls) {
    if (stall.rank == rank_ && IsPass(instruction.op)) seconds += stall.seconds;
  }
  return std::llround(seconds * kNsPerSecond);
}

int64_t SimulatedDurations::Of(const Program& program, const Instruction& instruction) const {
  if (instruction.expected_duration_ns == 0) return 0;
  const int64_t alone = instruction.profile_duration_ns >= 0 ? instruction.profile_duration_ns
                        : instruction.joint                  ? instruction.own_duration_ns
                                                             : instruction.expected_duration_ns;
  return std::llround(static_cast<double>(alone) * FactorOf(program, instruction) +
                      StallNs(program, instruction));
}

int64_t SimulatedDurations::ComputingOf(const Program& program, const Instruction& pass) const {
  const int64_t exchanged_ns = std::llround(static_cast<double>(pass.exchange_ns) * FactorOf(program, pass));
  return std::max<int64_t>(0, Of(program, pass) - exchanged_ns);
}

}  // namespace penstock::worker
