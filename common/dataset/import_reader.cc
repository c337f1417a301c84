#include "common/dataset/import_reader.h"

#include <utility>

#include "common/dataset/line_reader.h"
#include "common/dataset/parquet_lines.h"
#include "common/dataset/text_section_reader.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

class JsonLinesReader final : public ImportReader {
 public:
  explicit JsonLinesReader(LineReader lines) : lines_(std::move(lines)) {}
  absl::StatusOr<bool> Next(std::string* item) override { return lines_.Next(item); }
  uint64_t number() const override { return lines_.line_number(); }
  uint64_t bytes_read() const override { return lines_.bytes_read(); }

 private:
  LineReader lines_;
};

class ParquetReader final : public ImportReader {
 public:
  explicit ParquetReader(ParquetLines rows) : rows_(std::move(rows)) {}
  absl::StatusOr<bool> Next(std::string* item) override { return rows_.Next(item); }
  uint64_t number() const override { return rows_.line_number(); }
  uint64_t bytes_read() const override { return 0; }

 private:
  ParquetLines rows_;
};

class TextReader final : public ImportReader {
 public:
  explicit TextReader(TextSectionReader sections) : sections_(std::move(sections)) {}
  absl::StatusOr<bool> Next(std::string* item) override { return sections_.Next(item); }
  uint64_t number() const override { return sections_.number(); }
  uint64_t bytes_read() const override { return sections_.bytes_read(); }

 private:
  TextSectionReader sections_;
};

absl::StatusOr<std::unique_ptr<ImportReader>> OpenText(const std::string& path,
                                                       const TextSectionOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(TextSectionReader sections, TextSectionReader::Open(path, options));
  PENSTOCK_ASSIGN_OR_RETURN(const bool text, sections.IsText());
  if (!text) return std::unique_ptr<ImportReader>();
  return std::make_unique<TextReader>(std::move(sections));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ImportReader>> OpenImportReader(const ImportFile& file,
                                                               const ImportOptions& options) {
  if (file.kind == ImportFormat::kParquet) {
    PENSTOCK_ASSIGN_OR_RETURN(ParquetLines rows, ParquetLines::Open(options.parquet_program, file.path));
    return std::make_unique<ParquetReader>(std::move(rows));
  }
  if (file.kind != ImportFormat::kJsonLines) return OpenText(file.path, options.sections);
  PENSTOCK_ASSIGN_OR_RETURN(LineReader lines, LineReader::Open(file.path));
  return std::make_unique<JsonLinesReader>(std::move(lines));
}

absl::string_view ItemWord(ImportFormat kind) {
  if (kind == ImportFormat::kParquet) return "row";
  return kind == ImportFormat::kJsonLines ? "line" : "section";
}

}  // namespace penstock
