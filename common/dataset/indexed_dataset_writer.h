// Writes token datasets in Megatron-LM's indexed format, sample by sample.
//
//   auto writer = IndexedDatasetWriter::Create("data/flan", {.vocab = 32000});
//   PENSTOCK_RETURN_IF_ERROR((*writer)->Add(prompt, answer));     // one document of two sequences
//   PENSTOCK_RETURN_IF_ERROR((*writer)->Add({}, story));          // one document of one sequence
//   PENSTOCK_RETURN_IF_ERROR((*writer)->Add({}, chat, {1, 1, 0, 0, 1}));   // some tokens are not learnt
//   PENSTOCK_RETURN_IF_ERROR((*writer)->Finish());
//
// Weights are in PREFIX.weights (weights_format.h), which is there where a token has another one than 1.
// Tokens are stored as uint16 when all of them (and the vocabulary, if known) allow it, else as int32.
// Nothing appears under the final names before Finish: the files are written aside ("PREFIX.bin.partial") and
// renamed, or removed. A final name that is a link stays one: the file that it names is written.
//
// Long work can be taken up again by another process, also one that comes after a crash:
//
//   const DatasetWriterMark mark = (*writer)->Mark();                 // store it once
//   PENSTOCK_RETURN_IF_ERROR((*writer)->Sync());                      // has returned
//   auto again = IndexedDatasetWriter::OpenAt("data/flan", {.vocab = 32000}, mark);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/dataset/dataset_writer_mark.h"

namespace penstock {

struct DatasetWriterOptions {
  // Number of token ids; a token that is not below it is refused. 0: not known.
  uint32_t vocab = 0;
};

class IndexedDatasetWriter {
 public:
  // `prefix` is the path without .idx and .bin; missing folders are made.
  // Possible errors: INVALID_ARGUMENT (a final name is a folder or a device), PERMISSION_DENIED,
  // RESOURCE_EXHAUSTED, UNAVAILABLE; all name the path.
  static absl::StatusOr<std::unique_ptr<IndexedDatasetWriter>> Create(const std::string& prefix,
                                                                      const DatasetWriterOptions& options);

  // Goes on at a mark of another process, or of a writer that is gone, of the same prefix and options: what
  // was written behind it is cut off. Then Keep is in force. Possible errors: NOT_FOUND and DATA_LOSS (what
  // was written is not there any more, or is not what it was; files are as they were up to the mark), and as
  // Create.
  static absl::StatusOr<std::unique_ptr<IndexedDatasetWriter>> OpenAt(const std::string& prefix,
                                                                      const DatasetWriterOptions& options,
                                                                      const DatasetWriterMark& mark);

  // Removes what a process has left aside that did not come to Finish. Possible errors: as Create.
  static absl::Status RemoveUnfinished(const std::string& prefix);

  // Without Finish and Keep, removes what was written.
  virtual ~IndexedDatasetWriter() = default;

  // Adds a sample. Without an input it is learnt whole. `weights`: of the target's tokens in the loss; empty:
  // each 1.
  // Possible errors: INVALID_ARGUMENT (no token, a negative token or one beyond the vocabulary; other than
  // one weight a token, or one that is not finite or below 0), and as Create.
  virtual absl::Status Add(absl::Span<const int32_t> input, absl::Span<const int32_t> target,
                           absl::Span<const float> weights = {}) = 0;

  // Where the writer is: good for OpenAt once a Sync after it has returned.
  virtual DatasetWriterMark Mark() const = 0;
  // All that was added is on disk when it returns. Possible errors: as Create.
  virtual absl::Status Sync() = 0;
  // Without Finish, what was written stays for OpenAt.
  virtual void Keep() = 0;

  // Flushes all files to disk and puts them in place. Call once, last. Possible errors: as Create.
  virtual absl::Status Finish() = 0;
};

}  // namespace penstock
