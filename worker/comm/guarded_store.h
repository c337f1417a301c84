// A c10d store that is shared with strangers: whoever reaches rank 0's port reads and writes it. Keys and
// values go there sealed with the secret of the epoch (common/secret/sealed_values.h), so that a stranger
// neither learns where ranks listen and which ids their groups have, nor gives them others.
//
// A value that somebody else has put there ends get() with an error that says so.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "common/secret/sealed_values.h"

namespace penstock::worker {

// `store` is not used otherwise by whoever shares the secret.
c10::intrusive_ptr<c10d::Store> GuardStore(c10::intrusive_ptr<c10d::Store> store, const SealedValues& sealed);

}  // namespace penstock::worker
