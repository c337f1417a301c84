// Event simulator: when every instruction of every rank starts and ends.
//
// Exact for the model of execution: the instructions of a stream run one after another in the order of the
// program; an instruction starts when its stream is free and its deps have ended; a transfer starts when it
// has come to the front at both ends, and ends on both together; a collective starts on all ranks of its
// group together and takes each its own time. Linear in the number of instructions: no event queue is needed,
// because nothing in a program is decided while it runs. What RESHARDs take follows from when the first
// passes on the stages of ranks begin, and when the last ones have run (ProgramSet::reshard).
//
//   Simulator simulator;
//   PENSTOCK_RETURN_IF_ERROR(simulator.Run(programs));
//   simulator.start_ns()[17];
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "planner/core/parallel/stop.h"
#include "planner/core/program/program_set.h"

namespace penstock::core {

// Keeps its arrays between runs, so that repeated runs allocate nothing.
class Simulator {
 public:
  // Possible errors: INTERNAL (the programs block each other when every rank issues its instructions one by
  // one and waits for each transfer: names a rank and the instruction at which it stands), CANCELLED.
  absl::Status Run(const ProgramSet& programs, StopToken stop = {});

  // By position in ProgramSet.instructions.
  const std::vector<int64_t>& start_ns() const { return start_ns_; }
  const std::vector<int64_t>& end_ns() const { return end_ns_; }
  int64_t makespan_ns() const { return makespan_ns_; }

 private:
  // Runs a rank until it blocks or ends.
  void Advance(const ProgramSet& programs, int rank);
  // Registers that a rank stands at a transfer or collective; true when it was the last one and all may go
  // on.
  bool Arrive(const ProgramSet& programs, int rank, int32_t position, int64_t ready_ns);

  // What passes hide of the RESHARD of gradients that all members have come to, which starts at `start_ns`.
  int64_t HiddenGradientsNs(const ProgramSet& programs, const std::vector<int32_t>& members,
                            int64_t start_ns) const;
  // What they hide of the RESHARD of parameters, which all instructions but LOADs wait for.
  int64_t HiddenParametersNs(const ProgramSet& programs) const;
  // Has the RESHARD of parameters end earlier, and all that waits for it begin.
  void EndParametersEarlier(const ProgramSet& programs, int64_t hidden_ns);
  // How long a pass runs.
  int64_t DurationOf(int32_t position) const { return end_ns_[position] - start_ns_[position]; }

  // A transfer or collective that some ranks have come to.
  struct Meeting {
    int32_t arrived = 0;
    int64_t ready_ns = 0;
  };

  std::vector<int64_t> start_ns_;
  std::vector<int64_t> end_ns_;
  // By rank and stream.
  std::vector<int64_t> stream_end_ns_;
  std::vector<int32_t> next_;
  std::vector<Meeting> transfers_;
  std::vector<Meeting> collectives_;
  // For each collective the position on the ranks that have come.
  std::vector<std::vector<int32_t>> collective_positions_;
  std::vector<int32_t> runnable_;
  int64_t makespan_ns_ = 0;
};

}  // namespace penstock::core
