// Makes an indexed dataset from files that people have: JSONL (plain or gzip), Parquet and text.
//
//   ImportOptions options;
//   absl::StatusOr<ImportSummary> summary = ImportDataset({"train.jsonl.gz"}, "data/train", options);
//   absl::StatusOr<ImportSummary> summary = ImportDataset({"docs", "README.md"}, "data/docs", options);
//
// Files are read as a stream: memory does not grow with them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/dataset/import_files.h"
#include "common/dataset/text_sample.h"
#include "common/dataset/text_sections.h"
#include "common/tokenizer/text_tokenizer.h"

namespace penstock {

// How far an import is.
struct ImportProgress {
  size_t files_done = 0;
  size_t files = 0;
  // As they are stored. A Parquet file counts once it is read, what is no regular file never.
  uint64_t bytes_done = 0;
  uint64_t bytes = 0;
  uint64_t samples = 0;
};

// What becomes of the part that an earlier import has left, which did not come to its end.
struct EarlierImport {
  // Whether this one goes on with it.
  bool goes_on = false;
  // If so, where: behind so many lines, rows or sections (`item` is the word) of a file; 0: at its beginning.
  // An empty name: behind all files.
  std::string file = {};
  uint64_t items = 0;
  std::string item = {};
  // That are there already.
  uint64_t samples = 0;
  // If not, why.
  std::string reason = {};
};

struct ImportOptions {
  ImportFormat format = ImportFormat::kAuto;
  // Number of token ids; larger tokens are refused. 0: not known.
  uint32_t vocab = 0;
  TextSectionOptions sections = {};
  // What makes tokens of text: all of one model, as many as lines are read side by side. Empty: bytes are
  // tokens. They outlive the import.
  std::vector<TextTokenizer*> tokenizers = {};
  // The path of penstock-parquet; empty: it is not there, and Parquet is refused.
  std::string parquet_program = {};
  // How conversations of several answers are read.
  Conversations conversations = Conversations::kWhole;
  // Of lines, rows and sections of text so many are not in the dataset, but in one of their own
  // (validation_share.h). At least 0 and below 1.
  double validation_share = 0;
  std::string validation_prefix = {};
  // How often it is noted on disk how far the import is, so that another one can go on: after some lines,
  // rows or sections, once so much time has passed.
  absl::Duration save_every = absl::Seconds(30);
  // Begins anew, whatever an earlier import has left.
  bool restart = false;
  // Called in the thread that imports: once before anything is read, and after some lines each.
  std::function<void(const ImportProgress&)> progress = {};
  // Called first where an earlier import has left a part, but not with `restart`.
  std::function<void(const EarlierImport&)> earlier = {};
};

// Of what is for training, but for the last ones.
struct ImportSummary {
  uint64_t samples = 0;
  uint64_t input_tokens = 0;
  uint64_t target_tokens = 0;
  // Of the targets: those that have a token before them, all that a decoder alone can predict, and that weigh
  // something.
  uint64_t predicted_tokens = 0;
  // Samples whose tokens are masked in part, or have weights.
  uint64_t weighted_samples = 0;
  // Conversations that became a sample for each answer although one sample was asked for: their template
  // writes earlier answers otherwise when more follows.
  uint64_t split_conversations = 0;
  uint64_t validation_samples = 0;
  uint64_t validation_tokens = 0;
  // Of both, as the next ones.
  int32_t largest_token = 0;
  uint64_t files = 0;
  // Files of a folder that are not text (they hold a NUL byte) or empty.
  uint64_t skipped_files = 0;

  bool operator==(const ImportSummary&) const = default;
};

// Writes PREFIX.idx and PREFIX.bin, where tokens have weights PREFIX.weights, and with a tokenizer
// PREFIX.tokenizer.json (dataset_tokenizer.h); on an error of what is read none is touched.
//
// While it works, PREFIX.import.json says how far it is (import_state.h). Another call with the same paths
// and options, after an error or in another process after whatever end, goes on from there, and makes the
// dataset that one call would have made. It begins anew where options or files that were read have changed.
// After an error before the first note nothing is left.
//
// Possible errors: NOT_FOUND (a path), ALREADY_EXISTS (another import writes there), INVALID_ARGUMENT (a
// file's contents: names the file and the line; no sample at all), and those of IndexedDatasetWriter and of
// the tokenizers.
absl::StatusOr<ImportSummary> ImportDataset(const std::vector<std::string>& paths, const std::string& prefix,
                                            const ImportOptions& options);

}  // namespace penstock
