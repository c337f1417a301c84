#include "common/dataset/written_lengths.h"

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

constexpr const char* kLengthsExtension = ".lengths.partial";

std::string BesideIndex(const std::string& prefix) { return absl::StrCat(prefix, ".idx"); }

}  // namespace

absl::StatusOr<WrittenLengths> WrittenLengths::Create(const std::string& prefix) {
  PENSTOCK_ASSIGN_OR_RETURN(PartialFile file, PartialFile::CreateFor(BesideIndex(prefix), kLengthsExtension));
  return WrittenLengths(std::move(file));
}

absl::StatusOr<WrittenLengths> WrittenLengths::OpenAt(const std::string& prefix, const FileMark& mark) {
  PENSTOCK_ASSIGN_OR_RETURN(PartialFile file,
                            PartialFile::OpenAt(BesideIndex(prefix), kLengthsExtension, mark));
  return WrittenLengths(std::move(file));
}

absl::Status WrittenLengths::Remove(const std::string& prefix) {
  return PartialFile::Remove(BesideIndex(prefix), kLengthsExtension);
}

}  // namespace penstock
