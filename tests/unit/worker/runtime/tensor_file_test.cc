#include "worker/checkpoint/tensor_file.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/files/files.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

class TensorFileTest : public ::testing::Test {
 protected:
  TensorFileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "penstock-tensors-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/state";
  }
  ~TensorFileTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  std::string path_;
};

TEST_F(TensorFileTest, ReadsBackTheSameBitsInEveryType) {
  std::vector<NamedTensor> tensors;
  for (at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kLong}) {
    tensors.push_back({c10::toString(type), at::arange(6, at::kDouble).div(3).view({2, 3}).to(type)});
  }
  tensors.push_back({"transposed", tensors[0].value.t()});
  ASSERT_TRUE(WriteTensorFile(path_, tensors).ok());
  const absl::StatusOr<TensorFile> file = TensorFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  for (const NamedTensor& tensor : tensors) {
    const at::Tensor read = at::empty(tensor.value.sizes(), tensor.value.scalar_type());
    ASSERT_TRUE(file->Read(tensor.name, read).ok()) << tensor.name;
    EXPECT_TRUE(at::equal(read, tensor.value)) << tensor.name;
  }
}

TEST_F(TensorFileTest, NamesWhatIsMissingOrOfAnotherShape) {
  ASSERT_TRUE(WriteTensorFile(path_, {{"weight", at::zeros({2, 3})}}).ok());
  const absl::StatusOr<TensorFile> file = TensorFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_FALSE(file->Contains("bias"));
  EXPECT_EQ(file->Read("bias", at::zeros({2})).code(), absl::StatusCode::kNotFound);
  const absl::Status status = file->Read("weight", at::zeros({3, 2}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("weight"));
  EXPECT_EQ(file->Read("weight", at::zeros({2, 3}, at::kDouble)).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TensorFileTest, RefusesATruncatedFileAtEveryLength) {
  ASSERT_TRUE(WriteTensorFile(path_, {{"weight", at::ones({3})}}).ok());
  const std::string whole = *ReadFile(path_);
  for (size_t length = 0; length < whole.size(); ++length) {
    std::ofstream(path_, std::ios::binary) << whole.substr(0, length);
    const absl::Status status = TensorFile::Open(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << length;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  }
}

TEST_F(TensorFileTest, RefusesATypeThatItDoesNotWrite) {
  EXPECT_EQ(WriteTensorFile(path_, {{"flags", at::zeros({2}, at::kBool)}}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(TensorFileTest, NamesAFileThatIsNotThere) {
  EXPECT_EQ(TensorFile::Open(path_).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace penstock::worker
