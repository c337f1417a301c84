// An import that is interrupted goes on, and makes the dataset that one without an interruption makes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/dataset/import.h"
#include "common/hash/sha256.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/temporary_folder.h"

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

namespace fs = std::filesystem;

constexpr int kKilled = 7;
// What the folder has beside what goes in.
using Contents = std::map<std::string, std::string>;

std::string Repeated(int count, const std::function<std::string(int)>& line) {
  std::string text;
  for (int i = 0; i < count; ++i) text += line(i);
  return text;
}

// The first weight comes in the second file, half-way, and so does a token beyond uint16.
std::string MixedLine(int i) {
  if (i < 150) return absl::StrCat("{\"input\": [1, ", i, "], \"target\": [", i + 2, "]}\n");
  if (i == 200) return "{\"tokens\": [70000, 2]}\n";
  return absl::StrCat("{\"tokens\": [", i, ", 3, 4], \"weights\": [0, 1, 0.5]}\n");
}

class ImportResumeTest : public testing::Test {
 protected:
  ImportResumeTest() {
    Put("in/a.jsonl",
        Repeated(600, [](int i) { return absl::StrCat("{\"tokens\": [", i, ", ", i * i % 997, ", 5]}\n"); }));
    fs::create_directories(folder_.Path("in"));
    const std::string mixed = Repeated(300, MixedLine);
    gzFile file = gzopen(folder_.Path("in/b.jsonl.gz").c_str(), "wb");
    gzwrite(file, mixed.data(), static_cast<unsigned>(mixed.size()));
    gzclose(file);
    // More distinct weights than have a code.
    Put("in/c.jsonl", Repeated(400, [](int i) {
          return absl::StrCat("{\"tokens\": [1, 2], \"weights\": [", i, ", 1]}\n\n");
        }));
    Put("in/docs/one.md", Repeated(800, [](int i) {
          return absl::StrCat("# Heading ", i, "\n\nParagraph number ", i,
                              " of the text, which goes on for a while.\n\n");
        }));
    Put("in/docs/three.txt", "short");
    Put("in/docs/two.bin", std::string("a\0b", 3));
    for (const char* name : {"in/a.jsonl", "in/b.jsonl.gz", "in/docs", "in/c.jsonl"})
      paths_.push_back(folder_.Path(name));
    options_.validation_share = 0.2;
    options_.validation_prefix = folder_.Path("data/held");
    options_.save_every = absl::ZeroDuration();
    options_.earlier = [this](const EarlierImport& earlier) { earlier_ = earlier; };
  }

  void Put(const std::string& name, std::string_view contents) { folder_.Write(name, contents); }
  absl::StatusOr<ImportSummary> Import() { return ImportDataset(paths_, folder_.Path("data/out"), options_); }

  // In a process that is gone when it has come to its so-many-th report. Whether it has.
  bool IsKilledAt(int report) {
    const pid_t child = fork();
    if (child == 0) {
      options_.progress = [&report](const ImportProgress&) {
        if (--report == 0) _exit(kKilled);
      };
      _exit(Import().ok() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kKilled)) << status;
    return WEXITSTATUS(status) == kKilled;
  }

  Contents Written() const {
    Contents contents;
    for (const auto& entry : fs::directory_iterator(folder_.Path("data"))) {
      const std::string name = entry.path().filename().string();
      contents[name] = folder_.Read("data/" + name);
    }
    return contents;
  }
  // What an import makes that nothing interrupts. Nothing is left of it.
  Contents Uninterrupted() {
    const auto summary = Import();
    EXPECT_TRUE(summary.ok()) << summary.status();
    if (summary.ok()) summary_ = *summary;
    Contents contents = Written();
    Clear();
    return contents;
  }
  void Clear() {
    fs::remove_all(folder_.Path("data"));
    earlier_.reset();
  }
  // To the end, from whatever is there.
  void ExpectGoesOnTo(const Contents& expected) {
    earlier_.reset();
    const auto summary = Import();
    ASSERT_TRUE(summary.ok()) << summary.status();
    ASSERT_TRUE(earlier_.has_value());
    EXPECT_TRUE(earlier_->goes_on) << earlier_->reason;
    EXPECT_EQ(*summary, summary_);
    ExpectIs(expected);
  }
  void ExpectBeginsAnew(const std::string& reason) {
    earlier_.reset();
    options_.save_every = absl::InfiniteDuration();
    const auto summary = Import();
    ASSERT_TRUE(summary.ok()) << summary.status();
    ASSERT_TRUE(earlier_.has_value()) << reason;
    EXPECT_FALSE(earlier_->goes_on) << reason;
    EXPECT_THAT(earlier_->reason, HasSubstr(reason));
    const Contents made = Written();
    Clear();
    EXPECT_EQ(made, Uninterrupted());
    options_.save_every = absl::ZeroDuration();
  }
  void ExpectIs(const Contents& expected) const {
    const Contents written = Written();
    for (const auto& [name, text] : expected) EXPECT_TRUE(written.contains(name)) << name;
    for (const auto& [name, text] : written) {
      ASSERT_TRUE(expected.contains(name)) << name << " is left";
      EXPECT_TRUE(text == expected.at(name)) << name << " differs";
    }
  }

  TemporaryFolder folder_;
  std::vector<std::string> paths_;
  ImportOptions options_;
  std::optional<EarlierImport> earlier_;
  ImportSummary summary_;
};

// Made by penstock before it could go on with an import.
TEST_F(ImportResumeTest, FilesAreThoseThatImportsHaveAlwaysMade) {
  const Contents made = Uninterrupted();
  const Contents digests = {
      {"out.bin", "07ec0eebdf3f0f650ac557f70b269ca988d2cdc7d321e77cd81fc0bbcadb157d"},
      {"out.idx", "80b910e681487b4b4d17f5f9cabfc2dcb2ec1ee710a4ff6af82e7eb3bf242ce4"},
      {"out.weights", "87ca9c9fbc767655702dfd5f89e49c75309addce9559a037148b4aeba617d58d"},
      {"held.bin", "5d91cf0a4ed68a7e60010d5f44043f47ee5d7d6c858221bad5a76960065e6968"},
      {"held.idx", "d4be9e4824405b86126c3746f0a4d601326de7ea6b339d3e26549e996ce6927a"},
      {"held.weights", "23bb863e783646fd726e5bbadf44e0d698956dbb4e6f25afe0b2f99e1a523fcf"}};
  Contents found;
  for (const auto& [name, text] : made) found[name] = absl::BytesToHexString(Sha256(text));
  EXPECT_EQ(found, digests);
}

TEST_F(ImportResumeTest, OneThatWasKilledAnywhereGoesOnToTheSameFiles) {
  std::vector<uint64_t> samples;
  options_.progress = [&](const ImportProgress& progress) { samples.push_back(progress.samples); };
  const Contents expected = Uninterrupted();
  options_.progress = {};
  // Each file begins, and batches end within all that are long.
  ASSERT_GT(samples.size(), 11u);
  // The first report comes before anything is read, and nothing is noted then.
  for (size_t report = 2; report <= samples.size(); ++report) {
    options_.save_every = absl::ZeroDuration();
    ASSERT_TRUE(IsKilledAt(static_cast<int>(report)));
    options_.save_every = absl::InfiniteDuration();
    ExpectGoesOnTo(expected);
    EXPECT_EQ(earlier_->samples, samples[report - 1]);
    Clear();
  }
}

TEST_F(ImportResumeTest, OneThatIsKilledAgainAndAgainComesToItsEnd) {
  const Contents expected = Uninterrupted();
  int kills = 0;
  // The first report of one that goes on comes where it does.
  while (IsKilledAt(2)) ASSERT_LT(++kills, 50);
  EXPECT_GT(kills, 9);
  ExpectIs(expected);
}

// Files are longer than what was noted, and have been widened since.
TEST_F(ImportResumeTest, WhatWasWrittenBehindTheLastNoteIsCutOff) {
  const Contents expected = Uninterrupted();
  for (const int noted : {2, 5, 8}) {
    ASSERT_TRUE(IsKilledAt(noted));
    options_.save_every = absl::InfiniteDuration();
    ASSERT_TRUE(IsKilledAt(13 - noted));
    ExpectGoesOnTo(expected);
    options_.save_every = absl::ZeroDuration();
    Clear();
  }
}

TEST_F(ImportResumeTest, AMalformedLineInALateFileCostsThatFileAlone) {
  const Contents expected = Uninterrupted();
  const std::string good = folder_.Read("in/c.jsonl");
  // In the second batch, behind a note within the file.
  Put("in/c.jsonl", absl::StrReplaceAll(good, {{"\"weights\": [390, 1]", "\"weights\": 390"}}));
  const absl::Status broken = Import().status();
  EXPECT_THAT(std::string(broken.message()),
              AllOf(HasSubstr("c.jsonl', line 781"), HasSubstr("the same command goes on there")));
  Put("in/c.jsonl", good);
  ExpectGoesOnTo(expected);
  EXPECT_EQ(earlier_->file, folder_.Path("in/c.jsonl"));
  EXPECT_EQ(earlier_->items, 0u);
  EXPECT_GT(earlier_->samples, 900u);
}

TEST_F(ImportResumeTest, AFileThatIsLeftAsItIsIsReadOnWithinIt) {
  const Contents expected = Uninterrupted();
  ASSERT_TRUE(IsKilledAt(3));
  ExpectGoesOnTo(expected);
  EXPECT_EQ(earlier_->file, folder_.Path("in/a.jsonl"));
  EXPECT_EQ(earlier_->items, 512u);
  EXPECT_EQ(earlier_->item, "line");
  EXPECT_EQ(earlier_->samples, 512u);
}

TEST_F(ImportResumeTest, WhatIsLeftInAFolderThatIsImportedIsNoneOfItsFiles) {
  fs::create_directories(folder_.Path("data"));
  for (const char* name : {"in/a.jsonl", "in/c.jsonl"})
    fs::copy_file(folder_.Path(name),
                  folder_.Path(absl::StrCat("data/", fs::path(name).filename().string())));
  paths_ = {folder_.Path("data/../data")};
  ASSERT_TRUE(IsKilledAt(3));
  const auto summary = Import();
  ASSERT_TRUE(summary.ok()) << summary.status();
  ASSERT_TRUE(earlier_.has_value());
  EXPECT_TRUE(earlier_->goes_on) << earlier_->reason;
  EXPECT_EQ(summary->files, 2u);
  EXPECT_EQ(summary->skipped_files, 0u);
}

TEST_F(ImportResumeTest, FilesBehindTheLastNoteMayBeOthers) {
  ASSERT_TRUE(IsKilledAt(6));
  paths_.back() = folder_.Path("in/a.jsonl");
  ASSERT_TRUE(Import().ok());
  EXPECT_TRUE(earlier_->goes_on);
  const Contents made = Written();
  Clear();
  EXPECT_EQ(made, Uninterrupted());
}

TEST_F(ImportResumeTest, OtherOptionsBeginAnew) {
  ASSERT_TRUE(IsKilledAt(6));
  options_.vocab = 80000;
  ExpectBeginsAnew("its --vocab was different");
  ASSERT_TRUE(IsKilledAt(6));
  options_.sections.max_bytes = 1000;
  ExpectBeginsAnew("its --max-section was different");
  ASSERT_TRUE(IsKilledAt(6));
  options_.validation_share = 0.25;
  ExpectBeginsAnew("its --validation-share was different");
  ASSERT_TRUE(IsKilledAt(6));
  FakeTokenizer tokenizer;
  options_.tokenizers = {&tokenizer};
  ExpectBeginsAnew("its --tokenizer was another");
}

TEST_F(ImportResumeTest, WhatAnEarlierImportKeptForValidationIsRemovedWithIt) {
  ASSERT_TRUE(IsKilledAt(6));
  options_.validation_share = 0;
  ExpectBeginsAnew("its --validation-out was different");
}

TEST_F(ImportResumeTest, OtherFilesBeginAnew) {
  ASSERT_TRUE(IsKilledAt(6));
  Put("in/a.jsonl", folder_.Read("in/a.jsonl") + "{\"tokens\": [1]}\n");
  ExpectBeginsAnew("a.jsonl' has changed");
  ASSERT_TRUE(IsKilledAt(6));
  std::swap(paths_[0], paths_[1]);
  ExpectBeginsAnew("b.jsonl.gz' is where '");
  std::swap(paths_[0], paths_[1]);
  ASSERT_TRUE(IsKilledAt(6));
  paths_ = {paths_[0]};
  ExpectBeginsAnew("is not among the files any more");
}

TEST_F(ImportResumeTest, PartsThatAreMissingOrOthersBeginAnew) {
  // There is one note alone that can be gone on with: the other one is at the beginning of all.
  for (const char* name : {"out.bin.partial", "out.idx.lengths.partial", "held.bin.partial"}) {
    const std::string path = folder_.Path(absl::StrCat("data/", name));
    ASSERT_TRUE(IsKilledAt(3));
    fs::remove(path);
    ExpectBeginsAnew(name);
    ASSERT_TRUE(IsKilledAt(3));
    fs::resize_file(path, 8);
    ExpectBeginsAnew("is shorter than it was");
    ASSERT_TRUE(IsKilledAt(3));
    std::string changed = folder_.Read(absl::StrCat("data/", name));
    changed[3] ^= 1;
    Put(absl::StrCat("data/", name), changed);
    ExpectBeginsAnew("has changed");
  }
}

// The second file has widened tokens: the note at its beginning is about the file from before.
TEST_F(ImportResumeTest, WhatIsWrongBehindTheBeginningOfAFileCostsThatFileAlone) {
  const Contents expected = Uninterrupted();
  ASSERT_TRUE(IsKilledAt(5));
  fs::remove(folder_.Path("data/out.bin.wide.partial"));
  ExpectGoesOnTo(expected);
  EXPECT_EQ(earlier_->file, folder_.Path("in/b.jsonl.gz"));
  EXPECT_EQ(earlier_->items, 0u);
}

TEST_F(ImportResumeTest, AStateThatIsDamagedOrOfAnotherVersionBeginsAnew) {
  ASSERT_TRUE(IsKilledAt(6));
  const std::string state = folder_.Read("data/out.import.json");
  Put("data/out.import.json", state.substr(0, state.size() / 2));
  ExpectBeginsAnew("out.import.json' is not of this version of penstock");
  ASSERT_TRUE(IsKilledAt(6));
  Put("data/out.import.json", absl::StrReplaceAll(state, {{"\"counted\"", "\"counts\""}}));
  ExpectBeginsAnew("out.import.json' is damaged");
  ASSERT_TRUE(IsKilledAt(6));
  Put("data/out.import.json", absl::StrReplaceAll(state, {{"\"penstock\": \"", "\"penstock\": \"x"}}));
  ExpectBeginsAnew("it is of another version of penstock");
}

TEST_F(ImportResumeTest, RestartBeginsAnewAndSaysNothing) {
  const Contents expected = Uninterrupted();
  ASSERT_TRUE(IsKilledAt(6));
  options_.restart = true;
  int reports = 0;
  options_.progress = [&](const ImportProgress& progress) {
    EXPECT_TRUE(++reports > 1 || progress.samples == 0);
  };
  ASSERT_TRUE(Import().ok());
  EXPECT_FALSE(earlier_.has_value());
  ExpectIs(expected);
}

TEST_F(ImportResumeTest, WithoutANoteAnErrorLeavesNothing) {
  Put("in/c.jsonl", "{\"tokens\": [-1]}\n");
  options_.save_every = absl::InfiniteDuration();
  EXPECT_THAT(std::string(Import().status().message()),
              AllOf(HasSubstr("line 1"), testing::Not(HasSubstr("goes on"))));
  EXPECT_THAT(Written(), IsEmpty());
}

TEST_F(ImportResumeTest, AShareThatLeavesNothingLeavesNothing) {
  paths_ = {folder_.Path("in/a.jsonl")};
  options_.validation_share = 1e-9;
  EXPECT_THAT(std::string(Import().status().message()), HasSubstr("give another share"));
  EXPECT_THAT(Written(), IsEmpty());
}

TEST_F(ImportResumeTest, APathThatIsMissingIsRefusedBeforeAnythingIsRead) {
  paths_.push_back(folder_.Path("absent"));
  EXPECT_EQ(Import().status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(fs::exists(folder_.Path("data")));
}

TEST_F(ImportResumeTest, AnotherImportMeanwhileIsRefused) {
  const Contents expected = Uninterrupted();
  ImportOptions other = options_;
  options_.progress = [&](const ImportProgress&) {
    const absl::Status refused = ImportDataset(paths_, folder_.Path("data/out"), other).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("another import is writing"), HasSubstr("data/out'")));
    // Its validation is this one's dataset.
    other.validation_prefix = folder_.Path("data/out");
    EXPECT_EQ(ImportDataset(paths_, folder_.Path("data/third"), other).status().code(),
              absl::StatusCode::kAlreadyExists);
    other.validation_prefix = options_.validation_prefix;
  };
  ASSERT_TRUE(Import().ok());
  ExpectIs(expected);
}

TEST_F(ImportResumeTest, WithTokenizersItGoesOnToo) {
  FakeTokenizer first, second;
  const auto lines = [](const std::string& last) {
    return Repeated(1500, [](int i) { return absl::StrCat("{\"text\": \"", i, "\"}\n"); }) + last;
  };
  options_.tokenizers = {&first, &second};
  Put("in/a.jsonl", lines("{\"text\": \"good\"}\n"));
  const Contents expected = Uninterrupted();
  EXPECT_TRUE(expected.contains("out.tokenizer.json"));
  Put("in/a.jsonl", lines("{\"text\": \"bad!\"}\n"));
  EXPECT_THAT(std::string(Import().status().message()), HasSubstr("a.jsonl', line 1501: no '!' here"));
  // What was noted is within the file that has to change.
  Put("in/a.jsonl", lines("{\"text\": \"good\"}\n"));
  ExpectBeginsAnew("a.jsonl' has changed");
  std::swap(paths_[0], paths_[1]);
  const Contents swapped = Uninterrupted();
  Put("in/a.jsonl", lines("{\"text\": \"bad!\"}\n"));
  EXPECT_FALSE(Import().ok());
  Put("in/a.jsonl", lines("{\"text\": \"good\"}\n"));
  // As many threads as one likes.
  options_.tokenizers = {&first};
  ExpectGoesOnTo(swapped);
}

// Whose process has ended, say: what is there is not thrown away for that.
TEST_F(ImportResumeTest, ATokenizerThatFailsIsNoOtherTokenizer) {
  struct Failing : FakeTokenizer {
    absl::StatusOr<std::vector<int32_t>> Encode(const std::string&) override {
      return absl::UnavailableError("it has ended");
    }
  };
  FakeTokenizer good;
  Failing failing;
  options_.tokenizers = {&good};
  const Contents expected = Uninterrupted();
  ASSERT_TRUE(IsKilledAt(6));
  options_.tokenizers = {&failing};
  EXPECT_EQ(Import().status().code(), absl::StatusCode::kUnavailable);
  options_.tokenizers = {&good};
  ExpectGoesOnTo(expected);
}

TEST_F(ImportResumeTest, ProgressCountsBytesFilesAndSamplesUpToAll) {
  std::vector<ImportProgress> reports;
  options_.progress = [&](const ImportProgress& progress) { reports.push_back(progress); };
  ASSERT_TRUE(Import().ok());
  uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder_.Path("in")))
    if (entry.is_regular_file()) bytes += entry.file_size();
  EXPECT_EQ(reports.front().samples, 0u);
  EXPECT_EQ(reports.front().bytes_done, 0u);
  for (size_t i = 0; i < reports.size(); ++i) {
    EXPECT_EQ(reports[i].bytes, bytes);
    EXPECT_EQ(reports[i].files, 6u);
    if (i == 0) continue;
    EXPECT_GE(reports[i].bytes_done, reports[i - 1].bytes_done);
    EXPECT_GE(reports[i].samples, reports[i - 1].samples);
  }
  EXPECT_EQ(reports.back().bytes_done, bytes);
  EXPECT_EQ(reports.back().files_done, 6u);
  EXPECT_EQ(reports.back().samples, 2101u);
}

}  // namespace
}  // namespace penstock
