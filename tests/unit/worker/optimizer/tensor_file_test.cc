#include "worker/checkpoint/tensor_file.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/files/files.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

class TensorFileTest : public ::testing::Test {
 protected:
  const std::string path_ = ::testing::TempDir() + "/tensor_file_test/" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".safetensors";

  std::string Written(const std::vector<NamedTensor>& tensors) {
    const absl::StatusOr<CheckpointPart> part = WriteTensorFile(path_, tensors);
    EXPECT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(*part, *ReadPart(path_));
    return *ReadFile(path_);
  }

  void ExpectRefused(const std::string& contents, const std::string& cause) {
    ASSERT_TRUE(WriteFileAtomically(path_, contents).ok());
    const auto file = TensorFile::Open(path_);
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << cause;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(path_)) << cause;
  }

  // A file with this header and `data` bytes behind it.
  static std::string WithHeader(const std::string& header, size_t data) {
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data, '\0');
  }
};

TEST_F(TensorFileTest, GivesBackEveryTypeBitForBit) {
  const at::Tensor values = at::linspace(-3, 3, 7, at::kDouble);
  std::vector<NamedTensor> tensors = {{"strided", at::arange(12, at::kFloat).view({3, 4}).t()},
                                      {"scalar", values[2]}};
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kLong}) {
    tensors.push_back({std::string(c10::toString(type)), values.to(type)});
  }
  Written(tensors);
  const auto file = TensorFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  for (const NamedTensor& tensor : tensors) {
    at::Tensor read = at::zeros_like(tensor.value);
    ASSERT_TRUE(file->Read(tensor.name, read).ok()) << tensor.name;
    EXPECT_TRUE(read.equal(tensor.value)) << tensor.name;
  }
}

TEST_F(TensorFileTest, RefusesEveryTruncation) {
  const std::string contents = Written({{"w", at::ones({3})}, {"b", at::ones({5}, at::kDouble)}});
  for (size_t size = 0; size < contents.size(); ++size) {
    ExpectRefused(contents.substr(0, size), std::to_string(size) + " bytes");
  }
}

TEST_F(TensorFileTest, RefusesAHeaderThatIsNoHeader) {
  for (const std::string header :
       {"[]", "{", "3", R"({"w": 3})", R"({"w": {"dtype": 3, "shape": [1], "data_offsets": [0, 4]}})",
        R"({"w": {"dtype": "F32", "shape": "x", "data_offsets": [0, 4]}})",
        R"({"w": {"dtype": "F32", "shape": [1]}})",
        R"({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}})",
        R"({"w": {"dtype": "F32", "shape": [1], "data_offsets": ["a", 4]}})",
        R"({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 400]}})"}) {
    ExpectRefused(WithHeader(header, 8), header);
  }
}

TEST_F(TensorFileTest, NamesATensorThatIsMissingOrDifferent) {
  Written({{"w", at::ones({3})}});
  const auto file = TensorFile::Open(path_);
  EXPECT_FALSE(file->Contains("v"));
  EXPECT_EQ(file->Read("v", at::zeros({3})).code(), absl::StatusCode::kNotFound);
  for (const at::Tensor& other : {at::zeros({4}), at::zeros({1, 3}), at::zeros({3}, at::kDouble)}) {
    const absl::Status status = file->Read("w", other);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("'w'"));
  }
}

TEST_F(TensorFileTest, NamesAFileThatIsMissing) {
  const auto file = TensorFile::Open(path_);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(path_));
}

TEST_F(TensorFileTest, RefusesToWriteATypeItCannotName) {
  const std::vector<NamedTensor> tensors = {{"w", at::ones({1}, at::kBool)}};
  EXPECT_EQ(WriteTensorFile(path_, tensors).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TensorCopies::Of(tensors).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TensorFileTest, CopiesStayAsTheyWereWhenTheTensorsChange) {
  const at::Tensor matrix = at::arange(12, at::kFloat).view({3, 4});
  const std::vector<NamedTensor> tensors = {{"transposed", matrix.t()}, {"b", at::ones({5}, at::kBFloat16)}};
  const std::string before = Written(tensors);
  const absl::StatusOr<TensorCopies> copies = TensorCopies::Of(tensors);
  ASSERT_TRUE(copies.ok()) << copies.status();
  matrix.zero_();
  const absl::StatusOr<CheckpointPart> part = copies->Write(path_);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(*ReadFile(path_), before);
  EXPECT_EQ(*part, *ReadPart(path_));
}

TEST_F(TensorFileTest, CopiesAreWrittenForAsLongAsTheyAreWanted) {
  const absl::StatusOr<TensorCopies> copies = TensorCopies::Of({{"a", at::ones({5})}, {"b", at::ones({7})}});
  ASSERT_TRUE(copies.ok()) << copies.status();
  ASSERT_TRUE(copies->Write(path_).ok());
  const std::string before = *ReadFile(path_);
  ASSERT_TRUE(std::filesystem::remove(path_));
  int asked = 0;
  const auto ends = [&] { return ++asked < 2 ? absl::OkStatus() : absl::UnavailableError("the epoch"); };
  EXPECT_EQ(copies->Write(path_, ends).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".partial"));
  ASSERT_TRUE(copies->Write(path_, [] { return absl::OkStatus(); }).ok());
  EXPECT_EQ(*ReadFile(path_), before);
}

TEST_F(TensorFileTest, ReadsIntoTensorsThatAreNotContiguous) {
  Written({{"w", at::arange(6, at::kFloat).view({2, 3})}});
  const at::Tensor wide = at::zeros({2, 6});
  const absl::StatusOr<TensorFile> file = TensorFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Read("w", wide.narrow(1, 1, 3)).ok());
  EXPECT_TRUE(wide.narrow(1, 1, 3).equal(at::arange(6, at::kFloat).view({2, 3})));
  EXPECT_EQ(wide.sum().item<float>(), 15);
}

}  // namespace
}  // namespace penstock::worker
