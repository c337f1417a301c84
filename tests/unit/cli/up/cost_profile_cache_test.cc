#include "planner/cli/up/cost_profile_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/held_out/disturbance.h"
#include "planner/cli/profile_file.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/cli/profile/some_profile.h"

namespace penstock::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

v1::ModelSpec Model() {
  v1::ModelSpec model;
  model.set_architecture(v1::ARCHITECTURE_GPT);
  model.set_layers(4);
  model.set_hidden(64);
  model.set_heads(4);
  model.set_ffn(256);
  model.set_vocab(100);
  model.set_max_sequence_length(512);
  model.set_dtype(v1::DATA_TYPE_FLOAT32);
  return model;
}

std::string Name(const v1::ModelSpec& model, uint32_t copies = 1) {
  MeasureOptions options;
  options.model = model;
  options.threads = 2;
  options.copies = copies;
  return CostProfileName(options);
}

// Other files have this name and more, in file systems that take 255 bytes.
TEST(CostProfileCacheTest, NamesThatWouldBeTooLongEndWithAHashOfAllOfThem) {
  MeasureOptions options;
  options.model = Model();
  for (uint32_t degree = 2; degree <= 64; ++degree) options.tensor_degrees.push_back(degree);
  const std::string name = CostProfileName(options);
  EXPECT_LE(name.size(), 205u);
  EXPECT_THAT(name, HasSubstr("gpt-hidden64"));
  ++options.tensor_degrees.back();
  EXPECT_NE(CostProfileName(options), name);
}

TEST(CostProfileCacheTest, TheNameIsReadable) {
  EXPECT_THAT(
      Name(Model()),
      HasSubstr(
          "gpt-hidden64-heads4-ffn256-vocab100-length512-layers4-data-type-float32-threads2-workers1-"));
}

TEST(CostProfileCacheTest, SharesOfContextRanksAreMeasuredForGroupsThatHaveThem) {
  EXPECT_THAT(ContextRanksToMeasure(Model(), 1), testing::IsEmpty());
  EXPECT_THAT(ContextRanksToMeasure(Model(), 2), ElementsAre(2));
  EXPECT_THAT(ContextRanksToMeasure(Model(), 16), ElementsAre(2, 4));
  v1::ModelSpec t5 = Model();
  t5.set_architecture(v1::ARCHITECTURE_T5);
  EXPECT_THAT(ContextRanksToMeasure(t5, 16), testing::IsEmpty());
  MeasureOptions options;
  options.model = Model();
  options.context_ranks = {2, 4};
  EXPECT_THAT(CostProfileName(options), HasSubstr("-context2-context4-"));
}

TEST(CostProfileCacheTest, WhatChangesTheCostOfALayerChangesTheName) {
  std::vector<v1::ModelSpec> models(27, Model());
  models[1].set_architecture(v1::ARCHITECTURE_T5);
  models[2].set_feed_forward(v1::FEED_FORWARD_GATED_GELU);
  models[3].set_attention_inner(128);
  models[4].set_relative_position_buckets(16);
  models[5].set_relative_position_max_distance(64);
  models[6].set_max_sequence_length(1024);
  models[7].set_key_value_heads(2);
  models[8].set_norm(v1::NORM_RMS);
  models[9].set_position(v1::POSITION_ROTARY);
  models[10].set_attention_biases(v1::BIASES_NONE);
  models[11].set_feed_forward_biases(v1::BIASES_NONE);
  // What the caches keep of a layer while the others are computed.
  models[12].set_layers(3);
  models[13].set_attention_window(64);
  models[14].set_windowless_interval(2);
  models[15].set_score_cap(50);
  models[16].set_logit_cap(30);
  models[17].set_norm_placement(v1::NORM_PLACEMENT_BOTH);
  models[18].set_joint_head_norms(true);
  models[19].set_shared_expert_ffn(64);
  models[20].set_gated_shared_expert(true);
  models[21].set_query_key_value_clip(8);
  models[22].set_router_balance_loss(0.1);
  models[23].set_router_z_loss(0.1);
  models[24].add_windowless_layers(2);
  models[25].set_experts(4);
  models[25].add_dense_layers(2);
  models[26].set_experts(4);
  models[26].add_dense_layers(2);
  models[26].set_dense_ffn(96);
  std::set<std::string> names = {Name(Model(), 2)};
  for (const v1::ModelSpec& model : models) names.insert(Name(model));
  EXPECT_EQ(names.size(), models.size() + 1);
}

TEST(CostProfileCacheTest, GpusHaveProfilesOfTheirOwn) {
  MeasureOptions options;
  options.model = Model();
  const std::string on_cpu = CostProfileName(options);
  options.gpus = {3};
  EXPECT_NE(CostProfileName(options), on_cpu);
  EXPECT_THAT(CostProfileName(options), HasSubstr("-gpu-"));
}

TEST(CostProfileCacheTest, EachTensorDegreeHasAProfileOfItsOwn) {
  MeasureOptions options;
  options.model = Model();
  const std::string whole = CostProfileName(options);
  EXPECT_THAT(whole, testing::Not(HasSubstr("tensor")));
  options.tensor_degrees = {2};
  EXPECT_NE(CostProfileName(options), whole);
  EXPECT_THAT(CostProfileName(options), HasSubstr("-tensor2-"));
}

// A worker that writes what it was started with, in place of a profile.
TEST(CostProfileCacheTest, EachCopyIsMeasuredOnItsGpuAtTheDegreeOfTheMesh) {
  const TemporaryFolder folder;
  const std::string worker = folder.Write(
      "penstock-worker", "#!/bin/sh\nfor flag; do echo \"$flag\" >>\"$0.flags\"; done\nexit 1\n");
  std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
  MeasureOptions options;
  options.worker_binary = worker;
  options.model = Model();
  options.cache_dir = folder.path();
  options.gpus = {5};
  options.tensor_degrees = {4};
  options.on_start = [](bool) {};
  options.stopped = [](absl::Duration) { return false; };
  EXPECT_THAT(std::string(MeasureOrReadProfile(options).status().message()), HasSubstr("exit"));
  EXPECT_THAT(folder.Read("penstock-worker.flags"), HasSubstr("--device=cuda:5\n"));
  EXPECT_THAT(folder.Read("penstock-worker.flags"), HasSubstr("--tensor=4\n"));
}

// The first ends when the second has written what it was started with.
TEST(CostProfileCacheTest, TheFirstOfSeveralCopiesMeasuresLinksAlone) {
  const TemporaryFolder folder;
  const std::string worker = folder.Write("penstock-worker",
                                          "#!/bin/sh\n"
                                          "mkfifo \"$0.meeting\" 2>/dev/null\n"
                                          "case \"$*\" in\n"
                                          "  *load-1*) echo \"$*\" >\"$0.second\"; echo >\"$0.meeting\";;\n"
                                          "  *) echo \"$*\" >\"$0.first\"; cat \"$0.meeting\"; exit 1;;\n"
                                          "esac\n");
  std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
  MeasureOptions options;
  options.worker_binary = worker;
  options.model = Model();
  options.cache_dir = folder.path();
  options.copies = 2;
  options.tensor_degrees = {1};
  options.on_start = [](bool) {};
  options.stopped = [](absl::Duration) { return false; };
  EXPECT_THAT(std::string(MeasureOrReadProfile(options).status().message()), HasSubstr("exit"));
  EXPECT_THAT(folder.Read("penstock-worker.first"), Not(HasSubstr("--without-links")));
  EXPECT_THAT(folder.Read("penstock-worker.second"), HasSubstr("--without-links"));
}

// A worker that is ended in the middle, and then another one.
TEST(CostProfileCacheTest, AMeasurementGoesOnWithWhatAnInterruptedOneLeft) {
  const TemporaryFolder folder;
  const std::string worker = folder.Write(
      "penstock-worker",
      "#!/bin/sh\nfor flag; do case $flag in --so-far=*) echo found >>\"${flag#--so-far=}\";; esac; done\n"
      "exit 1\n");
  std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
  std::vector<bool> goes_on;
  MeasureOptions options;
  options.worker_binary = worker;
  options.model = Model();
  options.cache_dir = folder.Path("cache");
  options.on_start = [&](bool again) { goes_on.push_back(again); };
  options.stopped = [](absl::Duration) { return false; };
  for (int turn = 0; turn < 2; ++turn) EXPECT_FALSE(MeasureOrReadProfile(options).ok());
  EXPECT_THAT(goes_on, ElementsAre(false, true));
  EXPECT_EQ(folder.Read(absl::StrCat("cache/", CostProfileName(options), ".so-far")), "found\nfound\n");
}

// A worker whose profile has such a comment, asked for it.
absl::StatusOr<MeasuredProfile> MeasureWithComment(const TemporaryFolder& folder,
                                                   const std::string& comment) {
  v1::ProfileFile profile = SomeProfile();
  profile.mutable_profile()->set_comment(comment);
  EXPECT_TRUE(WriteProfileFile(profile, folder.Path("made.json")).ok());
  const std::string worker = folder.Write(
      "penstock-worker", absl::StrCat("#!/bin/sh\nfor flag; do case $flag in --out=*) cp ",
                                      folder.Path("made.json"), " \"${flag#--out=}\";; esac; done\n"));
  std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
  MeasureOptions options;
  options.worker_binary = worker;
  options.model = Model();
  options.cache_dir = folder.Path("cache");
  options.on_start = [](bool) {};
  options.stopped = [](absl::Duration) { return false; };
  return MeasureOrReadProfile(options);
}

TEST(CostProfileCacheTest, WhatWasDisturbedIsNotKept) {
  const TemporaryFolder folder;
  const auto disturbed = MeasureWithComment(folder, WithDisturbance("medians", "a build"));
  ASSERT_TRUE(disturbed.ok()) << disturbed.status();
  EXPECT_EQ(disturbed->disturbance, "a build");
  EXPECT_EQ(disturbed->path, "");
  const auto quiet = MeasureWithComment(folder, "measured anew");
  ASSERT_TRUE(quiet.ok()) << quiet.status();
  EXPECT_EQ(quiet->file.profile().comment(), "measured anew");
  EXPECT_TRUE(std::filesystem::exists(quiet->path));
  const auto cached = MeasureWithComment(folder, "not measured again");
  ASSERT_TRUE(cached.ok()) << cached.status();
  EXPECT_EQ(cached->file.profile().comment(), "measured anew");
}

TEST(CostProfileCacheTest, ModelsOfEqualLayersShareAProfile) {
  v1::ModelSpec model = Model();
  model.set_tied_head(true);
  model.mutable_rotary()->set_theta(500000);
  EXPECT_EQ(Name(model), Name(Model()));
  model.set_decoder_start_token(3);
  EXPECT_EQ(Name(model), Name(Model()));
}

}  // namespace
}  // namespace penstock::cli
