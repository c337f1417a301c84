// penstock-parquet FILE: the rows of a Parquet file as lines of JSON on stdout, for `penstock dataset
// import`. A program of its own, so that no other one loads Arrow's libraries (cmake/Parquet.cmake).
//
// Exit status: 0; 1 (reading failed: the last line on stderr says why); 2 (no FILE).
#include <arrow/io/file.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/util/type_fwd.h>
#include <parquet/arrow/reader.h>
#include <parquet/properties.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "planner/parquet/row_json.h"

namespace penstock {
namespace {

// Rows that are in memory at once, and bytes of lines that are written at once.
constexpr int64_t kRowsTogether = 1024;
constexpr size_t kBytesTogether = 1 << 20;

// Leaves of the schema whose columns have values that can be written: others are not even read.
arrow::Result<std::vector<int>> WantedLeaves(parquet::arrow::FileReader& reader) {
  std::shared_ptr<arrow::Schema> schema;
  ARROW_RETURN_NOT_OK(reader.GetSchema(&schema));
  std::vector<int> wanted;
  const parquet::SchemaDescriptor& leaves = *reader.parquet_reader()->metadata()->schema();
  for (int leaf = 0; leaf < leaves.num_columns(); ++leaf) {
    const std::string column = leaves.GetColumnRoot(leaf)->name();
    const std::shared_ptr<arrow::Field> field = schema->GetFieldByName(column);
    if (field != nullptr && IsJsonType(*field->type())) wanted.push_back(leaf);
  }
  return wanted;
}

arrow::Status WriteBatch(const arrow::RecordBatch& batch) {
  std::string text;
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    AppendRow(batch, row, &text);
    text.push_back('\n');
    if (text.size() < kBytesTogether && row + 1 < batch.num_rows()) continue;
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
      return arrow::Status::IOError("whoever asked reads no more");
    text.clear();
  }
  return arrow::Status::OK();
}

arrow::Status WriteRows(const std::string& path) {
  ARROW_ASSIGN_OR_RAISE(const std::shared_ptr<arrow::io::ReadableFile> file,
                        arrow::io::ReadableFile::Open(path));
  parquet::ArrowReaderProperties properties;
  properties.set_batch_size(kRowsTogether);
  properties.set_pre_buffer(false);
  parquet::arrow::FileReaderBuilder builder;
  ARROW_RETURN_NOT_OK(builder.Open(file));
  std::unique_ptr<parquet::arrow::FileReader> reader;
  ARROW_RETURN_NOT_OK(builder.properties(properties)->Build(&reader));
  ARROW_ASSIGN_OR_RAISE(const std::vector<int> leaves, WantedLeaves(*reader));
  std::vector<int> groups(static_cast<size_t>(reader->num_row_groups()));
  for (size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int>(i);
  ARROW_ASSIGN_OR_RAISE(const auto batches, reader->GetRecordBatchReader(groups, leaves));
  for (;;) {
    std::shared_ptr<arrow::RecordBatch> batch;
    ARROW_RETURN_NOT_OK(batches->ReadNext(&batch));
    if (batch == nullptr) break;
    ARROW_RETURN_NOT_OK(WriteBatch(*batch));
  }
  return std::fflush(stdout) == 0 ? arrow::Status::OK()
                                  : arrow::Status::IOError("whoever asked reads no more");
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("penstock-parquet: give one FILE\n", stderr);
    return 2;
  }
  const arrow::Status status = penstock::WriteRows(argv[1]);
  if (status.ok()) return 0;
  std::string message = status.message();
  for (char& character : message)
    if (character == '\n') character = ' ';
  std::fprintf(stderr, "%s\n", message.c_str());
  return 1;
}
