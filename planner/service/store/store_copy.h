// A copy of a store in the making: step by step, so that commits go on between the steps.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace penstock {

class StoreCopy {
 public:
  // Removes the file.
  virtual ~StoreCopy() = default;

  // Copies some more, for milliseconds; true when all is copied. What was committed by then is in it, whole.
  // Possible errors: those of EventStore.
  virtual absl::StatusOr<bool> Step() = 0;

  // Of a file that is whole after the last step.
  virtual const std::string& path() const = 0;
  // As of the last step.
  virtual uint64_t copied_bytes() const = 0;
  virtual uint64_t total_bytes() const = 0;
};

}  // namespace penstock
