// Makes an indexed dataset from files that people have: JSONL (plain or gzip), Parquet and text.
//
//   ImportOptions options;
//   absl::StatusOr<ImportSummary> summary = ImportDataset({"train.jsonl.gz"}, "data/train", options);
//   absl::StatusOr<ImportSummary> summary = ImportDataset({"docs", "README.md"}, "data/docs", options);
//
// Files are read as a stream: memory does not grow with them, but for 12 bytes a sequence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dataset/text_sample.h"
#include "common/dataset/text_sections.h"
#include "common/tokenizer/text_tokenizer.h"

namespace penstock {

enum class ImportFormat {
  // By name: .jsonl, .json, .jsonl.gz and .json.gz are JSON lines (json_sample.h, with a tokenizer
  // text_sample.h), .parquet is Parquet, everything else is text.
  kAuto,
  kJsonLines,
  // Each row as a line of JSON, columns as its fields. A folder means all .parquet files below it, in order
  // of
  // their paths, without hidden ones.
  kParquet,
  // Without a tokenizer bytes as tokens 0 to 255; a folder means all text files below it, in order of their
  // paths, without hidden
  // ones.
  kText,
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
};

// Writes PREFIX.idx and PREFIX.bin, where tokens have weights PREFIX.weights, and with a tokenizer
// PREFIX.tokenizer.json (dataset_tokenizer.h); on an error of what is read none is touched. Possible errors:
// NOT_FOUND (a path), INVALID_ARGUMENT (a file's contents: names the file and the line; no sample at all),
// and those of IndexedDatasetWriter and of the tokenizers.
absl::StatusOr<ImportSummary> ImportDataset(const std::vector<std::string>& paths, const std::string& prefix,
                                            const ImportOptions& options);

}  // namespace penstock
