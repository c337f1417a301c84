// Operators that LibTorch does not have in C++ for tensors without values (the meta device).
#pragma once

namespace penstock::worker {

// From now on every operator of the CPU takes such tensors too, but for those that return what the values
// are: they go on to be errors, as they would have the host wait for a GPU. Idempotent.
void CompleteMetaOperators();

}  // namespace penstock::worker
