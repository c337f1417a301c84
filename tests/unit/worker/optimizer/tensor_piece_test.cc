#include "worker/checkpoint/tensor_piece.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/temporary_folder.h"
#include "worker/checkpoint/initial_values.h"

namespace penstock::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// 0, 1, 2, ...
at::Tensor Numbers(std::vector<int64_t> shape) {
  return at::arange(c10::multiply_integers(shape), at::kDouble).view(shape);
}

// The elements of `numbers` that the slice has, one behind the other.
at::Tensor ValuesOf(const TensorSlice& slice, const at::Tensor& numbers) {
  const Block whole = WholeBlock(slice.shape);
  const at::Tensor matrix = numbers.view({whole.rows(), whole.columns()});
  std::vector<at::Tensor> parts;
  for (const auto& [block, copy] : slice.blocks) {
    parts.push_back(matrix.narrow(0, block.first_row, block.rows())
                        .narrow(1, block.first_column, block.columns())
                        .reshape({-1}));
  }
  return at::cat(parts);
}

// Elements [begin, end) of it.
TensorPiece PieceOf(const TensorSlice& slice, int64_t begin, int64_t end) {
  return {slice, begin, ValuesOf(slice, Numbers(slice.shape)).narrow(0, begin, end - begin).contiguous()};
}

// Elements [begin, end) of a tensor of 6 x 4.
TensorPiece Elements(int64_t begin, int64_t end) { return PieceOf(WholeSlice("w", {6, 4}), begin, end); }

std::vector<std::string> NamesOf(const TensorPiece& piece) {
  std::vector<std::string> names;
  for (const NamedTensor& entry : EntriesOf({piece})) names.push_back(entry.name);
  return names;
}

class TensorPieceTest : public ::testing::Test {
 protected:
  TensorFile File(const std::vector<NamedTensor>& tensors) {
    const std::string path = folder_.Path("rank-0.safetensors");
    EXPECT_TRUE(WriteTensorFile(path, tensors).ok());
    return *TensorFile::Open(path);
  }
  TensorFile FileOf(const std::vector<TensorPiece>& pieces) { return File(EntriesOf(pieces)); }

  // Reads the piece from the files, and compares it.
  static void ExpectRead(const TensorPiece& piece, const std::vector<const TensorFile*>& files) {
    const TensorPiece read = {piece.slice, piece.begin, at::full_like(piece.values, -1)};
    std::vector<MissingPiece> missing = PiecesToRead({read});
    for (const TensorFile* file : files) ASSERT_TRUE(ReadPieces(*file, missing).ok());
    EXPECT_TRUE(missing.empty());
    EXPECT_TRUE(read.values.equal(piece.values)) << read.values << piece.values;
  }

  TemporaryFolder folder_;
};

TEST_F(TensorPieceTest, AreNamedByTheirElementsAndWholeTensorsByTheirName) {
  EXPECT_THAT(NamesOf(Elements(3, 10)), testing::ElementsAre("w[3:10]"));
  EXPECT_THAT(NamesOf(Elements(0, 24)), testing::ElementsAre("w"));
  EXPECT_EQ(EntriesOf({Elements(0, 24)}).front().value.sizes(), at::IntArrayRef({6, 4}));
}

TEST_F(TensorPieceTest, BlocksOfWholeRowsAreIntervalsAndOthersRectangles) {
  const TensorSlice rows = {"w", {6, 4}, {{{0, 2, 0, 4}}, {{3, 4, 0, 4}}}};
  EXPECT_THAT(NamesOf(PieceOf(rows, 0, 12)), testing::ElementsAre("w[0:8]", "w[12:16]"));
  EXPECT_THAT(NamesOf(PieceOf(rows, 3, 10)), testing::ElementsAre("w[3:8]", "w[12:14]"));
  const TensorSlice columns = {"w", {6, 4}, {{{0, 6, 1, 3}}}};
  EXPECT_THAT(NamesOf(PieceOf(columns, 0, 12)), testing::ElementsAre("w[0:6,1:3]"));
  EXPECT_THAT(NamesOf(PieceOf(columns, 1, 11)),
              testing::ElementsAre("w[0:1,2:3]", "w[1:5,1:3]", "w[5:6,1:2]"));
  const TensorSlice bias = {"b", {8}, {{{0, 1, 2, 4}}, {{0, 1, 6, 7}}}};
  EXPECT_THAT(NamesOf(PieceOf(bias, 0, 3)), testing::ElementsAre("b[2:4]", "b[6:7]"));
}

TEST_F(TensorPieceTest, WhatAnotherRankWritesIsNotWrittenAgain) {
  const TensorSlice slice = {"w", {6, 4}, {{{0, 2, 0, 4}}, {{3, 4, 0, 4}, /*copy=*/true}}};
  EXPECT_THAT(NamesOf(PieceOf(slice, 0, 12)), testing::ElementsAre("w[0:8]"));
}

TEST_F(TensorPieceTest, AreFoundInWholeTensorsAndInPiecesOfSeveralFiles) {
  const TensorFile whole = FileOf({Elements(0, 24)});
  const TensorFile pieces = FileOf({Elements(0, 5), Elements(5, 11)});
  const TensorFile rest = File({EntriesOf({Elements(11, 24)}).front(), {"wide", at::zeros({3})}});
  for (const auto& files : {std::vector{&whole}, std::vector{&pieces, &rest}, std::vector{&rest, &pieces}}) {
    for (const auto& [begin, end] : {std::pair(0, 24), {3, 20}, {11, 12}, {6, 24}})
      ExpectRead(Elements(begin, end), files);
  }
}

// Divides [0, size) at random places into `count` parts, which may be empty.
std::vector<int64_t> Cuts(int64_t size, int count, std::mt19937& random) {
  std::vector<int64_t> cuts = {0, size};
  for (int i = 1; i < count; ++i) cuts.push_back(std::uniform_int_distribution<int64_t>(0, size)(random));
  std::ranges::sort(cuts);
  return cuts;
}

// What the ranks of a random mesh have of a tensor: bands of rows, as query, key and value of a layer, of
// which each has a part of the rows or the columns; and each of these in intervals.
std::vector<TensorPiece> Divided(const std::vector<int64_t>& shape, std::mt19937& random) {
  const auto upto = [&](int most) { return std::uniform_int_distribution(1, most)(random); };
  const Block whole = WholeBlock(shape);
  const bool by_rows = upto(2) == 1 && whole.rows() > 1;
  const int ranks = upto(4);
  std::vector<TensorSlice> slices(static_cast<size_t>(ranks), {"w", shape, {}});
  const int64_t size = by_rows ? whole.rows() : whole.columns();
  const std::vector<int64_t> bands = Cuts(size, by_rows || whole.rows() == 1 ? upto(3) : 1, random);
  for (size_t band = 0; band + 1 < bands.size(); ++band) {
    const std::vector<int64_t> cuts = Cuts(bands[band + 1] - bands[band], ranks, random);
    for (size_t rank = 0; rank < slices.size(); ++rank) {
      const int64_t begin = bands[band] + cuts[rank];
      const int64_t end = bands[band] + cuts[rank + 1];
      if (begin == end) continue;
      slices[rank].blocks.push_back(
          {by_rows ? Block{begin, end, 0, whole.columns()} : Block{0, whole.rows(), begin, end}});
    }
  }
  std::vector<TensorPiece> pieces;
  for (const TensorSlice& slice : slices) {
    if (slice.blocks.empty()) continue;
    const std::vector<int64_t> cuts = Cuts(ValuesOf(slice, Numbers(shape)).numel(), upto(3), random);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      if (cuts[i] < cuts[i + 1]) pieces.push_back(PieceOf(slice, cuts[i], cuts[i + 1]));
    }
  }
  return pieces;
}

TEST_F(TensorPieceTest, AnyDivisionIsReadIntoAnyOther) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const auto upto = [&](int most) { return int64_t{std::uniform_int_distribution(1, most)(random)}; };
    const std::vector<int64_t> shape =
        round % 4 == 0 ? std::vector<int64_t>{upto(30)} : std::vector<int64_t>{upto(9), upto(9)};
    std::vector<TensorPiece> written = Divided(shape, random);
    std::ranges::shuffle(written, random);
    const size_t half = written.size() / 2;
    const TensorFile first = FileOf({written.begin(), written.begin() + static_cast<ptrdiff_t>(half)});
    const TensorFile second = FileOf({written.begin() + static_cast<ptrdiff_t>(half), written.end()});
    for (const TensorPiece& wanted : Divided(shape, random)) ExpectRead(wanted, {&first, &second});
  }
}

TEST_F(TensorPieceTest, LeavesWhatNoFileHas) {
  const TensorFile file = FileOf({Elements(4, 8), Elements(12, 20)});
  std::vector<MissingPiece> missing =
      PiecesToRead({{WholeSlice("w", {6, 4}), 0, at::zeros({24}, at::kDouble)}});
  ASSERT_TRUE(ReadPieces(file, missing).ok());
  ASSERT_EQ(missing.size(), 1u);
  std::vector<Block> left;
  for (const LocatedBlock& located : missing.front().blocks) left.push_back(located.block);
  EXPECT_THAT(left, ::testing::UnorderedElementsAre(Block{0, 1, 0, 4}, Block{2, 3, 0, 4}, Block{5, 6, 0, 4}));
}

TEST_F(TensorPieceTest, RejectsAnotherShapeAndAnotherType) {
  const TensorFile file = FileOf({Elements(0, 24)});
  std::vector<MissingPiece> missing =
      PiecesToRead({{WholeSlice("w", {4, 6}), 0, at::zeros({24}, at::kDouble)}});
  const absl::Status shape = ReadPieces(file, missing);
  EXPECT_EQ(shape.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(shape.message()),
              AllOf(HasSubstr("rank-0.safetensors': tensor 'w' is [6, 4], that of the model [4, 6]"),
                    HasSubstr("another model")));
  missing = PiecesToRead({{WholeSlice("w", {6, 4}), 0, at::zeros({4}, at::kFloat)}});
  EXPECT_EQ(ReadPieces(file, missing).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TensorPieceTest, RejectsPartsThatTheTensorDoesNotHave) {
  const at::Tensor values = at::zeros({4}, at::kDouble);
  for (const NamedTensor& entry : std::vector<NamedTensor>{{"w[22:26]", values},
                                                           {"w[0:3]", values},
                                                           {"w[0:2,3:5]", values.view({2, 2})},
                                                           {"w[0:2,0:2]", values}}) {
    const TensorFile file = File({entry});
    std::vector<MissingPiece> missing =
        PiecesToRead({{WholeSlice("w", {6, 4}), 0, at::zeros({24}, at::kDouble)}});
    EXPECT_EQ(ReadPieces(file, missing).code(), absl::StatusCode::kInvalidArgument) << entry.name;
  }
}

TEST_F(TensorPieceTest, InitialValuesAreConvertedFromAnyDivision) {
  std::mt19937 random(8);
  const std::vector<TensorPiece> written = Divided({6, 9}, random);
  FileOf(written);
  for (TensorPiece wanted : Divided({6, 9}, random)) {
    const at::Tensor expected = wanted.values;
    wanted.values = at::zeros_like(expected, at::kBFloat16);
    const absl::Status read = ReadInitialValues(folder_.path(), {wanted});
    ASSERT_TRUE(read.ok()) << read;
    EXPECT_TRUE(wanted.values.equal(expected.to(at::kBFloat16)));
  }
  EXPECT_THAT(
      std::string(ReadInitialValues(folder_.path(), {{WholeSlice("v", {2}), 0, at::zeros({2})}}).message()),
      HasSubstr("has no tensor 'v'"));
}

// Of an imported model masters are what its checkpoint has, not the rounding of it; of another run its
// masters.
TEST_F(TensorPieceTest, InitialMastersAreTheMostExactThatThereAre) {
  const at::Tensor exact = at::tensor({1.0F + 1.0F / 1024, -2.0F, 3.0F});
  const TensorPiece wanted = {WholeSlice("optimizer.master.v", {3}), 0, at::zeros({3})};
  File({{"v", exact}});
  absl::Status read = ReadInitialMasters(folder_.path(), {wanted});
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_TRUE(wanted.values.equal(exact));

  File({{"v", exact.to(at::kBFloat16)}, {"optimizer.master.v", exact * 2}});
  read = ReadInitialMasters(folder_.path(), {wanted});
  ASSERT_TRUE(read.ok()) << read;
  EXPECT_TRUE(wanted.values.equal(exact * 2));

  File({{"w", exact}});
  EXPECT_THAT(std::string(ReadInitialMasters(folder_.path(), {wanted}).message()),
              HasSubstr("has no tensor 'v'"));
}

}  // namespace
}  // namespace penstock::worker
