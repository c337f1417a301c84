#include "planner/cli/model/tensor_copy.h"

#include <algorithm>
#include <cstring>

#include "common/status/status_macros.h"

namespace penstock::cli {
namespace {

// At a time.
constexpr uint64_t kChunkBytes = uint64_t{8} << 20;

// `bytes` of a tensor from `begin` on.
absl::Status Copy(const FoundTensor& from, uint64_t begin, uint64_t bytes, SafetensorsWriter& writer) {
  std::string chunk;
  while (bytes > 0) {
    chunk.resize(std::min(bytes, kChunkBytes));
    PENSTOCK_RETURN_IF_ERROR(from.Read(begin, absl::MakeSpan(chunk)));
    PENSTOCK_RETURN_IF_ERROR(writer.Append(chunk));
    begin += chunk.size();
    bytes -= chunk.size();
  }
  return absl::OkStatus();
}

// [rows, columns] to [columns, rows]. Tiles, so that neither side is read or written far apart.
std::string Transposed(const std::string& matrix, uint64_t rows, uint64_t columns, uint64_t element) {
  constexpr uint64_t kTile = 32;
  std::string result(matrix.size(), '\0');
  for (uint64_t row = 0; row < rows; row += kTile) {
    for (uint64_t column = 0; column < columns; column += kTile) {
      for (uint64_t i = row; i < std::min(rows, row + kTile); ++i) {
        for (uint64_t j = column; j < std::min(columns, column + kTile); ++j) {
          std::memcpy(&result[(j * rows + i) * element], &matrix[(i * columns + j) * element], element);
        }
      }
    }
  }
  return result;
}

// The bytes [begin, begin + rows * columns * element) as a matrix, with rows and columns changed.
absl::Status CopyTransposed(const FoundTensor& from, uint64_t begin, uint64_t rows, uint64_t columns,
                            SafetensorsWriter& writer) {
  const uint64_t element = ElementBytesOf(from.tensor->type);
  std::string matrix(rows * columns * element, '\0');
  PENSTOCK_RETURN_IF_ERROR(from.Read(begin, absl::MakeSpan(matrix)));
  return writer.Append(Transposed(matrix, rows, columns, element));
}

}  // namespace

std::vector<int64_t> ShapeOfPiece(const TensorNames& names, const TensorPiece& piece) {
  const int64_t rows = piece.rows_of_whole();
  if (names.columns == 0) return {rows};
  return piece.transposed ? std::vector<int64_t>{names.columns, rows}
                          : std::vector<int64_t>{rows, names.columns};
}

absl::Status AppendFromPiece(const FoundTensor& stored, const TensorNames& names, const TensorPiece& piece,
                             SafetensorsWriter& writer) {
  const auto rows = static_cast<uint64_t>(piece.rows);
  const auto columns = static_cast<uint64_t>(std::max<int64_t>(1, names.columns));
  if (piece.transposed) return CopyTransposed(stored, 0, columns, rows, writer);
  const uint64_t row_bytes = columns * ElementBytesOf(stored.tensor->type);
  return Copy(stored, static_cast<uint64_t>(piece.first_row) * row_bytes, rows * row_bytes, writer);
}

absl::Status AppendPiece(const FoundTensor& tensor, const TensorNames& names, const TensorPiece& piece,
                         int64_t first_row, SafetensorsWriter& writer) {
  const auto columns = static_cast<uint64_t>(std::max<int64_t>(1, names.columns));
  const auto rows = static_cast<uint64_t>(piece.rows);
  const uint64_t row_bytes = columns * ElementBytesOf(tensor.tensor->type);
  const uint64_t begin = static_cast<uint64_t>(first_row) * row_bytes;
  return piece.transposed ? CopyTransposed(tensor, begin, rows, columns, writer)
                          : Copy(tensor, begin, rows * row_bytes, writer);
}

}  // namespace penstock::cli
