// Reads files into a dataset, from any point on. The working part of ImportDataset (import.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/dataset/import.h"
#include "common/dataset/import_files.h"
#include "common/dataset/import_reader.h"
#include "common/dataset/indexed_dataset_writer.h"
#include "common/dataset/json_sample.h"
#include "common/parallel/task_pool.h"

namespace penstock {

// How far an import is, together with what its writers have.
struct ImportPoint {
  // Which of the files is read, and how many of its lines, rows or sections have been; 0: it has not begun.
  size_t file = 0;
  uint64_t items = 0;
  // Lines, rows and sections of all files, without blank ones: they tell what is for validation.
  uint64_t counted = 0;
  ImportSummary summary = {};

  bool operator==(const ImportPoint&) const = default;
};

class Importer {
 public:
  // Called where all before the point has been added to the writers: at the beginning of each file, after
  // each batch of its items, and at the end. `bytes`: of all files so far, as they are stored. Its error ends
  // the import.
  using Reached = std::function<absl::Status(const ImportPoint& point, uint64_t bytes)>;

  // `validation`: null where nothing is kept for it. All arguments outlive this.
  Importer(const ImportOptions& options, const std::vector<ImportFile>& files, IndexedDatasetWriter& writer,
           IndexedDatasetWriter* validation);

  // Reads all that is behind `from`; the writers have what is before. Possible errors: as ImportDataset.
  absl::Status Run(const ImportPoint& from, const Reached& reached);

  const ImportSummary& summary() const { return point_.summary; }

 private:
  struct Item {
    std::string text;
    uint64_t number = 0;
    absl::StatusOr<std::vector<TokenSample>> samples = std::vector<TokenSample>();
  };

  absl::Status ReadFile(const ImportFile& file, const Reached& reached);
  absl::Status ReadItems(ImportReader& reader, const ImportFile& file, const Reached& reached);
  absl::Status AddItems(std::vector<Item>& items, const ImportFile& file);
  // Of some items, by the reader's tokenizer where there are any.
  void MakeSamples(const std::vector<Item*>& items, ImportFormat kind, int reader) const;
  // Those of one conversation stay together.
  absl::Status AddAll(const absl::StatusOr<std::vector<TokenSample>>& samples);
  absl::Status Add(const TokenSample& sample, bool validates);
  void Count(const TokenSample& sample);

  const ImportOptions& options_;
  const std::vector<ImportFile>& files_;
  IndexedDatasetWriter& writer_;
  IndexedDatasetWriter* const validation_;
  TaskPool pool_;
  ImportPoint point_;
  // Of the files before the one that is read.
  uint64_t bytes_before_ = 0;
};

}  // namespace penstock
