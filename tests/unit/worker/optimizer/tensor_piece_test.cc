#include "worker/checkpoint/tensor_piece.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

class TensorPieceTest : public ::testing::Test {
 protected:
  TensorFile File(const std::vector<NamedTensor>& tensors) {
    const std::string path = folder_.Path("pieces.safetensors");
    EXPECT_TRUE(WriteTensorFile(path, tensors).ok());
    return *TensorFile::Open(path);
  }

  // Elements [begin, end) of a tensor of 0, 1, 2, ... of 6 x 4 elements.
  static NamedTensor Elements(int64_t begin, int64_t end) {
    return PieceOf("w", {6, 4}, begin, at::arange(24, at::kDouble).narrow(0, begin, end - begin));
  }

  TemporaryFolder folder_;
};

TEST_F(TensorPieceTest, AreNamedByTheirElementsAndWholeTensorsByTheirName) {
  EXPECT_EQ(Elements(3, 10).name, "w[3:10]");
  EXPECT_EQ(Elements(0, 24).name, "w");
  EXPECT_EQ(Elements(0, 24).value.sizes(), at::IntArrayRef({6, 4}));
}

TEST_F(TensorPieceTest, AreFoundInWholeTensorsAndInPiecesOfSeveralFiles) {
  const TensorFile whole = File({Elements(0, 24)});
  const TensorFile pieces = File({Elements(0, 5), Elements(5, 11)});
  const TensorFile rest = File({Elements(11, 24), {"wide", at::zeros({3})}});
  for (const auto& files : {std::vector{&whole}, std::vector{&pieces, &rest}, std::vector{&rest, &pieces}}) {
    for (const auto& [begin, end] : {std::pair(0, 24), {3, 20}, {11, 12}, {6, 24}}) {
      const at::Tensor read = at::full({end - begin}, -1, at::kDouble);
      std::vector<MissingPiece> missing = PiecesToRead({PieceOf("w", {6, 4}, begin, read)});
      for (const TensorFile* file : files) ASSERT_TRUE(ReadPieces(*file, missing).ok());
      EXPECT_TRUE(missing.empty());
      EXPECT_TRUE(read.equal(at::arange(begin, end, at::kDouble))) << begin << " to " << end;
    }
  }
}

TEST_F(TensorPieceTest, LeavesWhatNoFileHas) {
  const TensorFile file = File({Elements(4, 8), Elements(12, 20)});
  std::vector<MissingPiece> missing = PiecesToRead({PieceOf("w", {6, 4}, 0, at::zeros({24}, at::kDouble))});
  ASSERT_TRUE(ReadPieces(file, missing).ok());
  std::vector<std::pair<int64_t, int64_t>> left;
  for (const MissingPiece& piece : missing) left.emplace_back(piece.begin, piece.destination.numel());
  EXPECT_THAT(left, ::testing::UnorderedElementsAre(std::pair(0, 4), std::pair(8, 4), std::pair(20, 4)));
}

TEST_F(TensorPieceTest, RejectsAnotherShapeAndAnotherType) {
  const TensorFile file = File({Elements(0, 24)});
  std::vector<MissingPiece> missing = PiecesToRead({{"w", at::zeros({4, 6}, at::kDouble)}});
  const absl::Status shape = ReadPieces(file, missing);
  EXPECT_EQ(shape.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(shape.message()), HasSubstr("'w' is F64 [6, 4]"));
  missing = PiecesToRead({{"w[0:4]", at::zeros({4}, at::kFloat)}});
  EXPECT_EQ(ReadPieces(file, missing).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock::worker
