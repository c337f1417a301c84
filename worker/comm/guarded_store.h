// A c10d store that strangers can read and change on the way: connections to rank 0's table are of ranks
// alone, and are not encrypted. Keys and values go there sealed with the secret of the epoch
// (common/secret/sealed_values.h), so that who sits on the wire neither learns where ranks listen and which
// ids their groups have, nor gives them others.
//
// A value that somebody else has made ends get() with an error that says so.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "common/secret/sealed_values.h"

namespace penstock::worker {

// `store` is not used otherwise by whoever shares the secret.
c10::intrusive_ptr<c10d::Store> GuardStore(c10::intrusive_ptr<c10d::Store> store, const SealedValues& sealed);

}  // namespace penstock::worker
