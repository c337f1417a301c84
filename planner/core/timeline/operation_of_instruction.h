// What an instruction of a plan is to who looks at what ranks did.
#pragma once

#include <cstdint>

#include "penstock/v1/plan.pb.h"

namespace penstock::core {

// What `penstock diagnose` calls it (docs/diagnosis.md); "wait" of one that only waits or frees.
const char* OperationName(const v1::Instruction& instruction);

// What a rank's wait for its batch is called.
inline constexpr const char* kBatchWaitName = "batch-wait";

// A pass that exchanges nothing inside.
bool IsLonePass(const v1::Instruction& instruction);

// A WAIT that takes no longer has not waited: what it is for was there before, nobody knows since when.
inline constexpr int64_t kShortestWaitNs = 10'000;

// A WAIT for data that comes in. What a RECV asked for is there when the WAIT for it ends, if that has
// waited.
bool IsArrival(const v1::Program& program, const v1::Instruction& instruction);

// The rank's place in its pipeline: each has one of the first stages.
uint32_t PositionOf(const v1::Program& program);

// The instruction's stream; 0: it has none that is known.
int StreamOf(const v1::Instruction& instruction);

}  // namespace penstock::core
