// PREFIX.tokenizer.json: which tokenizer a dataset was made with, so that datasets of different ones are not
// mixed. Datasets of bytes, and of tokens that were made elsewhere, have none.
//
// Two tokenizers count as the same when they have as many ids and make the same tokens of one text of many
// kinds: the files of one tokenizer differ from release to release of the libraries that save them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/dataset/indexed_dataset.h"
#include "common/tokenizer/text_tokenizer.h"

namespace penstock {

// Of a dataset that has just been written; `tokenizer` null: none, and an earlier one's record is removed.
// Possible errors: those of WriteFileAtomically and of removing a file. A tokenizer that refuses the text
// leaves no record.
absl::Status RecordTokenizer(const std::string& prefix, TextTokenizer* tokenizer);

// Tells tokenizers apart, as above, and their chat templates by what they make of a conversation. Of those of
// one process after the other: an import that goes on must have the same. Possible errors: those of the
// tokenizer that are not about the text.
absl::StatusOr<std::string> TokenizerFingerprint(TextTokenizer& tokenizer);

// A dataset and where it is.
struct PlacedDataset {
  std::string prefix;
  const IndexedDataset* dataset = nullptr;
};

// Whether those that have a record have the same. A record that is not of the dataset beside it (it was
// written anew by another program), or of another version, says nothing. Possible errors: INVALID_ARGUMENT,
// naming two of them.
absl::Status CheckSameTokenizer(const std::vector<PlacedDataset>& datasets);

}  // namespace penstock
