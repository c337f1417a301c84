#include "planner/cli/up/tensorboard_record.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <bit>
#include <functional>

#include "common/hash/crc32c.h"

namespace penstock::cli {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedOutputStream;

// Numbers of the fields of tensorflow.Event, tensorflow.Summary, Summary.Value and tensorflow.SessionLog.
constexpr int kEventWallTime = 1;
constexpr int kEventStep = 2;
constexpr int kEventFileVersion = 3;
constexpr int kEventSummary = 5;
constexpr int kEventSessionLog = 7;
constexpr int kSummaryValue = 1;
constexpr int kValueTag = 1;
constexpr int kValueSimpleValue = 2;
constexpr int kSessionLogStatus = 1;
constexpr uint32_t kSessionStart = 1;

constexpr const char* kFileVersion = "brain.Event:2";

std::string Write(const std::function<void(CodedOutputStream&)>& fields) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    CodedOutputStream out(&stream);
    fields(out);
  }
  return bytes;
}

void WriteBytes(int field, const std::string& bytes, CodedOutputStream& out) {
  WireFormatLite::WriteBytes(field, bytes, &out);
}

std::string EventOf(absl::Time now, uint64_t step, int field, const std::string& content) {
  return Write([&](CodedOutputStream& out) {
    WireFormatLite::WriteDouble(kEventWallTime, absl::ToDoubleSeconds(now - absl::UnixEpoch()), &out);
    if (step > 0) WireFormatLite::WriteInt64(kEventStep, static_cast<int64_t>(step), &out);
    WriteBytes(field, content, out);
  });
}

std::string ValueOf(const Scalar& scalar) {
  return Write([&](CodedOutputStream& out) {
    WriteBytes(kValueTag, scalar.tag, out);
    WireFormatLite::WriteFloat(kValueSimpleValue, static_cast<float>(scalar.value), &out);
  });
}

// So that a checksum is never that of data that holds a checksum (record_writer.h).
uint32_t MaskedChecksum(absl::string_view bytes) {
  constexpr uint32_t kMask = 0xa282ead8;
  return std::rotr(Crc32c(bytes), 15) + kMask;
}

}  // namespace

std::string VersionEvent(absl::Time now) { return EventOf(now, 0, kEventFileVersion, kFileVersion); }

std::string ScalarsEvent(absl::Time now, uint64_t step, const std::vector<Scalar>& scalars) {
  const std::string summary = Write([&](CodedOutputStream& out) {
    for (const Scalar& scalar : scalars) WriteBytes(kSummaryValue, ValueOf(scalar), out);
  });
  return EventOf(now, step, kEventSummary, summary);
}

std::string StartEvent(absl::Time now, uint64_t step) {
  const std::string session = Write(
      [](CodedOutputStream& out) { WireFormatLite::WriteUInt32(kSessionLogStatus, kSessionStart, &out); });
  return EventOf(now, step, kEventSessionLog, session);
}

std::string RecordOf(absl::string_view event) {
  const std::string length = Write([&](CodedOutputStream& out) { out.WriteLittleEndian64(event.size()); });
  return Write([&](CodedOutputStream& out) {
    out.WriteString(length);
    out.WriteLittleEndian32(MaskedChecksum(length));
    out.WriteString(std::string(event));
    out.WriteLittleEndian32(MaskedChecksum(event));
  });
}

}  // namespace penstock::cli
