// Instructions in words, for error messages and logs.
#pragma once

#include <string>

#include "worker/program/program.h"

namespace penstock::worker {

// "RECV", "REDUCE_GRADIENTS", ... as in the contract, without its prefix.
const char* OpName(Op op);

// "instruction 12 (RECV of the activation of micro-batch 2 on stage 1, from rank 0)". `instruction` is one of
// `program`.
std::string Describe(const Program& program, const Instruction& instruction);

}  // namespace penstock::worker
