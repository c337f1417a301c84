// What TensorBoard reads: records of events as bytes.
//
// A record is a length, its checksum, an Event, its checksum (TensorFlow's TFRecord:
// core/lib/io/record_writer.h; checksums are CRC-32C, masked). Of the messages Event, Summary and SessionLog
// (core/util/event.proto, core/framework/summary.proto) only the fields that are needed are written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace penstock::cli {

struct Scalar {
  // What TensorBoard shows it as; what stands before the first slash groups plots: "train/loss".
  std::string tag;
  double value = 0;
};

// The first event of a file: its version.
std::string VersionEvent(absl::Time now);
// Numbers of a step.
std::string ScalarsEvent(absl::Time now, uint64_t step, const std::vector<Scalar>& scalars);
// A session starts: TensorBoard forgets what it has read of this step and of later ones.
std::string StartEvent(absl::Time now, uint64_t step);

// An event as it stands in a file.
std::string RecordOf(absl::string_view event);

}  // namespace penstock::cli
