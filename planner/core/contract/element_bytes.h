// Bytes of a parameter or an activation of a model.
#pragma once

#include <cstdint>

#include "penstock/v1/job.pb.h"

namespace penstock::core {

// 0: the type is not set, or not known.
inline int64_t ElementBytes(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_FLOAT64:
      return 8;
    case v1::DATA_TYPE_FLOAT32:
      return 4;
    case v1::DATA_TYPE_BFLOAT16:
      return 2;
    default:
      return 0;
  }
}

}  // namespace penstock::core
