#include "worker/model/cap.h"

#include <ATen/ATen.h>

namespace penstock::worker {

void CapInPlace(double cap, const at::Tensor& values, at::Tensor* slope) {
  if (cap == 0) return;
  values.div_(cap).tanh_();
  if (slope != nullptr) *slope = at::square(values).neg_().add_(1);
  values.mul_(cap);
}

}  // namespace penstock::worker
