#include "worker/optimizer/parameter_slice.h"

namespace penstock::worker {

TensorSlice SliceOf(const NamedParameter& parameter) {
  return WholeSlice(parameter.name, parameter.value.sizes().vec());
}

std::vector<FlatSpan> CountedSpans(const FlatParameters&, const FlatSpan& span) { return {span}; }

}  // namespace penstock::worker
