// Whether a plan has a micro-batch whose passes go through it part by part.
#pragma once

#include "penstock/v1/plan.pb.h"

namespace penstock::core {

inline bool HasParts(const v1::Plan& plan) {
  for (const v1::Replica& replica : plan.replicas())
    for (const v1::MicroBatch& micro_batch : replica.micro_batches())
      if (!micro_batch.part_rows().empty()) return true;
  return false;
}

// Whether one has whole backward passes behind a forward pass in parts.
inline bool HasWholeBackward(const v1::Plan& plan) {
  for (const v1::Replica& replica : plan.replicas())
    for (const v1::MicroBatch& micro_batch : replica.micro_batches())
      if (micro_batch.whole_backward()) return true;
  return false;
}

// Whether parts of one begin inside of rows.
inline bool HasCutRows(const v1::Plan& plan) {
  for (const v1::Replica& replica : plan.replicas())
    for (const v1::MicroBatch& micro_batch : replica.micro_batches())
      if (!micro_batch.part_chunks().empty()) return true;
  return false;
}

}  // namespace penstock::core
