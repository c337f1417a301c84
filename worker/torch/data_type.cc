#include "worker/torch/data_type.h"

namespace penstock::worker {

c10::ScalarType ToScalarType(DataType type) {
  switch (type) {
    case DataType::kFloat64:
      return c10::ScalarType::Double;
    case DataType::kFloat32:
      return c10::ScalarType::Float;
    case DataType::kBFloat16:
      return c10::ScalarType::BFloat16;
  }
  return c10::ScalarType::Undefined;
}

c10::ScalarType AccumulationType(c10::ScalarType type) {
  return type == c10::ScalarType::Double ? c10::ScalarType::Double : c10::ScalarType::Float;
}

}  // namespace penstock::worker
