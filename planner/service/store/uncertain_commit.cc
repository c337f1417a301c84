#include "planner/service/store/uncertain_commit.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/hash/sha256.h"

namespace penstock {
namespace {

// Each number and each string ends where the next begins, so that no two lists of changes give the same text.
class Text {
 public:
  void Add(uint64_t number) { absl::StrAppend(&text_, number, ","); }
  void Add(absl::string_view bytes) { absl::StrAppend(&text_, bytes.size(), ":", bytes); }

  void Add(const JobChange& change) {
    Add(change.job);
    Add(change.job_id);
    Add(change.first_sequence);
    Add(change.events.size());
    for (const std::string& event : change.events) Add(event);
    Add(change.batches.size());
    for (const auto& [iteration, batch] : change.batches) {
      Add(iteration);
      Add(batch);
    }
    Add(change.forget_batches_before.has_value());
    Add(change.forget_batches_before.value_or(0));
    Add(change.snapshot.has_value());
    if (change.snapshot.has_value()) {
      Add(change.snapshot->sequence);
      Add(change.snapshot->bytes);
    }
    Add(change.remove);
  }

  std::string Digest() const { return Sha256(text_); }

 private:
  std::string text_;
};

std::string DigestOf(absl::Span<const JobChange> changes) {
  Text text;
  for (const JobChange& change : changes) text.Add(change);
  return text.Digest();
}

}  // namespace

UncertainCommit::UncertainCommit(absl::Span<const JobChange> changes)
    : count_(changes.size()), digest_(DigestOf(changes)) {}

absl::StatusOr<absl::Span<const JobChange>> UncertainCommit::Rest(absl::Span<const JobChange> changes) const {
  if (changes.size() < count_ || DigestOf(changes.first(count_)) != digest_) {
    return absl::AbortedError(
        absl::StrCat("the last commit ended without an answer and did take effect: its ", count_,
                     " changes must be committed again before others"));
  }
  return changes.subspan(count_);
}

}  // namespace penstock
