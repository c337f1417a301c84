#include "worker/optimizer/parameter_slice.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "worker/optimizer/adamw.h"

namespace penstock::worker {
namespace {

constexpr uint64_t kSeed = 5;

// Two heads of keys and values, a vocabulary that nothing divides, biases of queries, keys and values.
ModelConfig Model() {
  return {.layers = 1,
          .hidden = 8,
          .heads = 4,
          .attention_inner = 8,
          .ffn = 16,
          .vocab = 19,
          .max_sequence_length = 8,
          .dtype = DataType::kFloat64,
          .feed_forward = FeedForward::kGatedSilu,
          .position = Position::kRotary,
          .norm = Norm::kRms,
          .attention_biases = Biases::kAll,
          .feed_forward_biases = Biases::kAll,
          .key_value_heads = 2};
}

FlatParameters PartOf(int tensor_rank, int tensors) {
  const GroupPlace place = {.tensor = tensor_rank, .tensors = tensors};
  FlatParameters flat = MakeFlatParameters(
      StageParameterSpecs(Model(), {.first_layer = 0, .layers = 1, .first = true, .last = true}, place),
      kSeed, at::kDouble, at::kCPU, /*bucket_bytes=*/512);
  flat.gradients.copy_(flat.values);
  return flat;
}

double SquaresOf(int tensors, const Sharding& shards) {
  double sum = 0;
  for (int rank = 0; rank < tensors; ++rank) {
    const FlatParameters flat = PartOf(rank, tensors);
    for (int own = 0; own < (shards.divided ? shards.count : 1); ++own) {
      const auto optimizer = *AdamW::Create(
          {}, {&flat},
          {.of_tensor_rank = {
               .count = shards.count, .own = own, .divided = shards.divided, .tensor_rank = rank}});
      sum += optimizer->SumsOfSquares()->sum().item<double>();
    }
  }
  return sum;
}

TEST(ParameterSliceTest, TensorRanksCountEachGradientOnce) {
  const double whole = PartOf(0, 1).gradients.square().sum().item<double>();
  for (const int tensors : {1, 2, 4}) {
    EXPECT_NEAR(SquaresOf(tensors, {}), whole, 1e-12 * whole) << tensors;
    EXPECT_NEAR(SquaresOf(tensors, {.count = 3, .own = 0, .divided = true}), whole, 1e-12 * whole) << tensors;
  }
}

TEST(ParameterSliceTest, WithoutTensorRanksASpanIsCountedInOne) {
  const FlatParameters flat = PartOf(0, 1);
  const std::vector<FlatSpan> counted = CountedSpans(flat, {3, 40}, 0);
  ASSERT_EQ(counted.size(), 1u);
  EXPECT_EQ(counted[0].begin, 3);
  EXPECT_EQ(counted[0].end, 40);
}

// Whatever is summed over replicas and context ranks in shards, ring by ring, has the same bits on all tensor
// ranks.
TEST(ParameterSliceTest, ParametersLieAtTheSamePlacesOnAllTensorRanks) {
  const FlatParameters first = PartOf(0, 4);
  for (int rank = 1; rank < 4; ++rank) {
    const FlatParameters flat = PartOf(rank, 4);
    EXPECT_EQ(flat.values.numel(), first.values.numel());
    for (size_t i = 0; i < flat.parameters.size(); ++i)
      EXPECT_EQ(flat.parameters[i].offset, first.parameters[i].offset) << flat.parameters[i].name;
    ASSERT_EQ(flat.spans.size(), first.spans.size());
    for (size_t i = 0; i < flat.spans.size(); ++i) {
      EXPECT_EQ(flat.spans[i].begin, first.spans[i].begin);
      EXPECT_EQ(flat.spans[i].end, first.spans[i].end);
    }
  }
}

// Tensor ranks write each element once, and another number of them reads what it needs.
TEST(ParameterSliceTest, AnyTensorDegreeReadsWhatAnyOtherWrote) {
  for (const int before : {1, 2, 4}) {
    const TemporaryFolder folder;
    std::vector<TensorFile> files;
    std::map<std::string, int64_t> written;
    for (int rank = 0; rank < before; ++rank) {
      const FlatParameters flat = PartOf(rank, before);
      std::vector<TensorPiece> pieces;
      for (const NamedParameter& parameter : flat.parameters)
        pieces.push_back({.slice = SliceOf(parameter, rank), .values = parameter.value});
      const std::string path = folder.Path(std::to_string(rank));
      for (const NamedTensor& entry : EntriesOf(pieces))
        written[ParseEntryName(entry.name).tensor] += entry.value.numel();
      ASSERT_TRUE(WriteTensorFile(path, EntriesOf(pieces)).ok());
      files.push_back(*TensorFile::Open(path));
    }
    for (const NamedParameter& parameter : PartOf(0, 1).parameters)
      EXPECT_EQ(written[parameter.name], parameter.value.numel()) << parameter.name;
    for (const int after : {1, 2, 4}) {
      for (int rank = 0; rank < after; ++rank) {
        const FlatParameters expected = PartOf(rank, after);
        for (const NamedParameter& parameter : expected.parameters) {
          const at::Tensor read = at::zeros_like(parameter.value);
          std::vector<MissingPiece> missing =
              PiecesToRead({{.slice = SliceOf(parameter, rank), .values = read}});
          for (const TensorFile& file : files) ASSERT_TRUE(ReadPieces(file, missing).ok());
          EXPECT_TRUE(missing.empty());
          EXPECT_TRUE(read.equal(parameter.value)) << parameter.name << ", " << before << " to " << after;
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock::worker
