// Rule 0: the content hash is that of the plan (execution.md, section 13).
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "common/hash/sha256.h"
#include "planner/core/verify/rules.h"

namespace penstock::core::verify {
namespace {

// Takes the bytes of a serialised plan as they come, and sums those of all its fields but the two that are no
// content. Neither a copy of the plan nor its bytes are ever held: of a large plan they are half a gigabyte.
class ContentSum {
 public:
  void Add(absl::string_view bytes) {
    while (!bytes.empty()) {
      if (left_ == 0) {
        TakeOfHead(bytes.front());
        bytes.remove_prefix(1);
        continue;
      }
      const auto now = std::min<uint64_t>(left_, bytes.size());
      if (counts_) sum_.Add(bytes.substr(0, now));
      bytes.remove_prefix(now);
      left_ -= now;
    }
  }
  std::string Digest() { return sum_.Digest(); }

 private:
  // Wire types of protobuf.
  enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  // A byte of a tag, of a length or of a number: what stands in front of the bytes of a field.
  void TakeOfHead(char byte) {
    head_.push_back(byte);
    number_ |= static_cast<uint64_t>(byte & 0x7f) << shift_;
    shift_ += 7;
    if ((byte & 0x80) != 0) return;
    const uint64_t number = number_;
    number_ = 0;
    shift_ = 0;
    if (!has_tag_) {
      has_tag_ = true;
      tag_ = number;
      const auto wire = static_cast<uint32_t>(tag_ & 7);
      if (wire == kFixed64) EndHead(8);
      if (wire == kFixed32) EndHead(4);
    } else {
      EndHead((tag_ & 7) == kBytes ? number : 0);
    }
  }

  void EndHead(uint64_t bytes) {
    const uint64_t field = tag_ >> 3;
    counts_ = field != v1::Plan::kPlanningTimeNsFieldNumber && field != v1::Plan::kContentHashFieldNumber;
    if (counts_) sum_.Add(head_);
    head_.clear();
    has_tag_ = false;
    left_ = bytes;
  }

  Sha256Sum sum_;
  // What was read of the field that comes, and how many of its bytes are still to come.
  std::string head_;
  uint64_t number_ = 0;
  int shift_ = 0;
  bool has_tag_ = false;
  uint64_t tag_ = 0;
  bool counts_ = true;
  uint64_t left_ = 0;
};

// Gives a sum what is written, one buffer after another.
class SumStream final : public google::protobuf::io::ZeroCopyOutputStream {
 public:
  explicit SumStream(ContentSum& sum) : sum_(sum) {}

  bool Next(void** data, int* size) override {
    Flush();
    *data = buffer_.data();
    *size = static_cast<int>(buffer_.size());
    used_ = buffer_.size();
    return true;
  }
  void BackUp(int count) override { used_ -= static_cast<size_t>(count); }
  int64_t ByteCount() const override { return written_ + static_cast<int64_t>(used_); }

  void Flush() {
    sum_.Add({buffer_.data(), used_});
    written_ += static_cast<int64_t>(used_);
    used_ = 0;
  }

 private:
  ContentSum& sum_;
  std::array<char, size_t{1} << 16> buffer_;
  size_t used_ = 0;
  int64_t written_ = 0;
};

}  // namespace

void CheckContentHash(const v1::Plan& plan, Report& report) {
  if (plan.content_hash().empty()) return report.Add(kStructure, "content_hash is missing");
  ContentSum sum;
  SumStream stream(sum);
  {
    google::protobuf::io::CodedOutputStream output(&stream);
    output.SetSerializationDeterministic(true);
    plan.SerializeToCodedStream(&output);
  }
  stream.Flush();
  if (sum.Digest() != plan.content_hash())
    report.Add(kStructure, "content_hash is not that of the plan: it was changed after it was made");
}

}  // namespace penstock::core::verify
