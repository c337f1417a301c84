#include "planner/cli/up/up_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "planner/cli/strategy_list.h"

namespace penstock::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::ModelSpec SmallModel() { return *ModelOfFlags(UpOptions(), 64); }

UpOptions SimulatedRows() {
  UpOptions options;
  options.device.kind = UpDevice::kSimulated;
  options.profile = "gpt.json";
  options.lengths = "lengths.csv";
  options.rows = "0:4";
  return options;
}

TEST(UpOptionsTest, TheDefaultsMakeAJobThatIsPlannedFreely) {
  const auto job = MakeJobSpec(UpOptions(), SmallModel());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->planning().policy(), v1::POLICY_DYNAMIC);
  EXPECT_EQ(job->planning().schedule(), v1::SCHEDULE_AUTO);
  EXPECT_EQ(job->planning().stage_split(), v1::STAGE_SPLIT_AUTO);
  EXPECT_EQ(job->model().max_sequence_length(), 2048);
}

TEST(UpOptionsTest, EveryRankHasAPortForItsMetrics) {
  UpOptions options;
  options.pipeline = 2;
  options.data = 2;
  for (const char* address : {"", "127.0.0.1:0", "127.0.0.1:65532"}) {
    options.worker_metrics_listen = address;
    EXPECT_TRUE(MakeJobSpec(options, SmallModel()).ok()) << address;
  }
  options.worker_metrics_listen = "127.0.0.1:65533";
  EXPECT_THAT(std::string(MakeJobSpec(options, SmallModel()).status().message()),
              HasSubstr("--worker-metrics-listen 127.0.0.1:65533: the last rank would serve on port 65536"));
}

TEST(UpOptionsTest, EveryPolicyAndScheduleIsTaken) {
  for (const v1::Policy policy : {v1::POLICY_PADDING, v1::POLICY_CONCATENATED, v1::POLICY_PACKED}) {
    for (const v1::Schedule schedule : {v1::SCHEDULE_SPLIT_BACKWARD, v1::SCHEDULE_INTERLEAVED}) {
      UpOptions options;
      options.policy = policy;
      options.planning.schedule = schedule;
      options.planning.layers_per_stage = {1, 1, 1, 1};
      options.planning.rank_of_stage = {0, 1, 1, 0};
      EXPECT_TRUE(MakeJobSpec(options, SmallModel()).ok());
    }
  }
}

TEST(UpOptionsTest, AModelThatIsGivenIsFittedToTheSamples) {
  v1::ModelSpec learned = SmallModel();
  learned.set_max_sequence_length(1024);
  UpOptions options;
  options.limits = {.max_length = 512};
  EXPECT_EQ(FitModel(options, "--model", learned)->max_sequence_length(), 1024) << "positions are parameters";
  v1::ModelSpec rotary = learned;
  rotary.set_position(v1::POSITION_ROTARY);
  EXPECT_EQ(FitModel(options, "--model", rotary)->max_sequence_length(), 512);
  options.limits = {.max_length = 1025};
  for (const v1::ModelSpec& model : {learned, rotary}) {
    EXPECT_THAT(std::string(FitModel(options, "--model", model).status().message()),
                HasSubstr("--max-length 1025: the model of --model has 1024 positions"));
  }
  v1::ModelSpec t5;
  t5.set_architecture(v1::ARCHITECTURE_T5);
  t5.set_encoder_layers(2);
  t5.set_decoder_layers(2);
  EXPECT_EQ(FitModel(options, "--model", t5)->max_sequence_length(), 1025) << "has no end";
}

TEST(UpOptionsTest, AModelThatIsGivenKeepsItsNumberFormatUnlessTheUserChooses) {
  v1::ModelSpec model = SmallModel();
  model.set_dtype(v1::DATA_TYPE_BFLOAT16);
  UpOptions options;
  EXPECT_EQ(FitModel(options, "--model", model)->dtype(), v1::DATA_TYPE_BFLOAT16);
  options.dtype_given = true;
  EXPECT_EQ(FitModel(options, "--model", model)->dtype(), v1::DATA_TYPE_FLOAT32);
  options.pipeline = 5;
  EXPECT_THAT(std::string(FitModel(options, "--init-from", model).status().message()),
              HasSubstr("--pp 5: the model of --init-from has 4 layers"));
}

TEST(UpOptionsTest, AnEncoderDecoderHasLayersAndLimitsOfBothSides) {
  UpOptions options;
  options.architecture = v1::ARCHITECTURE_T5;
  options.encoder_layers = 3;
  options.decoder_layers = 5;
  options.limits = {.max_length = 0, .max_input = 4096, .max_target = 512};
  const auto model = ModelOfFlags(options, 64);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->layers(), 0);
  EXPECT_EQ(model->encoder_layers(), 3);
  EXPECT_EQ(model->decoder_layers(), 5);
  EXPECT_EQ(model->max_sequence_length(), 4096);
  options.feed_forward = v1::FEED_FORWARD_GATED_GELU;
  options.decoder_start_token = 63;
  EXPECT_EQ(ModelOfFlags(options, 64)->feed_forward(), v1::FEED_FORWARD_GATED_GELU);
  EXPECT_EQ(ModelOfFlags(options, 64)->decoder_start_token(), 63);
  EXPECT_THAT(std::string(ModelOfFlags(options, 63).status().message()),
              HasSubstr("--decoder-start-token 63"));
  options.pipeline = 9;
  EXPECT_THAT(std::string(ModelOfFlags(options, 64).status().message()), HasSubstr("--encoder-layers"));
}

TEST(UpOptionsTest, SidesAreCutApartForEncoderDecodersAlone) {
  UpOptions options;
  options.limits.max_input = 10;
  EXPECT_THAT(std::string(MakeJobSpec(options, SmallModel()).status().message()), HasSubstr("--max-input"));
}

TEST(UpOptionsTest, OnlyRealDevicesCutWithoutBeingAsked) {
  EXPECT_EQ(CutOf(UpOptions(), v1::ARCHITECTURE_GPT).limits.max_length, 2048);
  EXPECT_EQ(CutOf(SimulatedRows(), v1::ARCHITECTURE_GPT).limits.max_length, 0);
}

uint32_t LimitFor(const v1::ModelSpec& model, UpOptions options = {}) {
  LimitLengthsTo(model, &options);
  return CutOf(options, model.architecture()).limits.max_length;
}

TEST(UpOptionsTest, ALimitThatNobodyAskedForFitsTheModelThatIsGiven) {
  v1::ModelSpec model = SmallModel();
  model.set_max_sequence_length(512);
  EXPECT_EQ(LimitFor(model), 512);
  UpOptions asked;
  asked.limits.max_length = 600;
  EXPECT_EQ(LimitFor(model, asked), 600) << "what the user asks for is refused, not changed";
  model.set_max_sequence_length(4096);
  EXPECT_EQ(LimitFor(model), 2048);
  model.set_architecture(v1::ARCHITECTURE_T5);
  model.set_max_sequence_length(512);
  EXPECT_EQ(LimitFor(model), 2048) << "positions without an end";
}

TEST(UpOptionsTest, EveryNumberOfTheOptimizerReachesTheJob) {
  UpOptions options;
  options.learning_rate = 0.5;
  options.minimum_learning_rate = 0.25;
  options.warmup = 7;
  options.beta1 = 0.8;
  options.beta2 = 0.7;
  options.epsilon = 1e-6;
  options.weight_decay = 0.3;
  options.clip_norm = 2;
  const auto job = MakeJobSpec(options, SmallModel());
  ASSERT_TRUE(job.ok()) << job.status();
  const v1::TrainingSpec& training = job->training();
  EXPECT_EQ(training.learning_rate().peak(), 0.5);
  EXPECT_EQ(training.learning_rate().minimum(), 0.25);
  EXPECT_EQ(training.learning_rate().warmup_iterations(), 7);
  EXPECT_EQ(training.beta1(), 0.8);
  EXPECT_EQ(training.beta2(), 0.7);
  EXPECT_EQ(training.epsilon(), 1e-6);
  EXPECT_EQ(training.weight_decay(), 0.3);
  EXPECT_EQ(training.clip_norm(), 2);
}

TEST(UpOptionsTest, DecaysAndEpsilonAreBetweenNoneAndAll) {
  const std::pair<const char*, double UpOptions::*> kFlags[] = {
      {"--beta1", &UpOptions::beta1}, {"--beta2", &UpOptions::beta2}, {"--epsilon", &UpOptions::epsilon}};
  for (const auto& [flag, option] : kFlags) {
    for (const double bad : {0.0, 1.0, -0.5, std::nan("")}) {
      UpOptions options;
      options.*option = bad;
      EXPECT_THAT(std::string(MakeJobSpec(options, SmallModel()).status().message()), HasSubstr(flag));
    }
  }
}

TEST(UpOptionsTest, CheckpointsAreWrittenUnlessNobodyWantsThem) {
  UpOptions options;
  EXPECT_TRUE(WritesCheckpoints(options));
  options.no_checkpoints = true;
  EXPECT_FALSE(WritesCheckpoints(options));
  options.checkpoint_every = 5;
  EXPECT_THAT(std::string(MakeJobSpec(options, SmallModel()).status().message()),
              HasSubstr("--no-checkpoints"));
  UpOptions simulated = SimulatedRows();
  EXPECT_FALSE(WritesCheckpoints(simulated));
  simulated.checkpoint_every = 5;
  EXPECT_TRUE(WritesCheckpoints(simulated));
}

TEST(UpOptionsTest, WorkersRescueWhatSeveralOfThemHold) {
  UpOptions options;
  EXPECT_FALSE(MayRescue(options)) << "one replica";
  options.data = 2;
  EXPECT_TRUE(MayRescue(options));
  UpOptions divided = options;
  divided.planning.shard_optimizer_state = true;
  EXPECT_FALSE(MayRescue(divided));
  UpOptions unwanted = options;
  unwanted.no_rescue = true;
  EXPECT_FALSE(MayRescue(unwanted));
  UpOptions without = options;
  without.no_checkpoints = true;
  EXPECT_FALSE(MayRescue(without));
  options.data = 1;
  options.context = 2;
  EXPECT_TRUE(MayRescue(options));
}

TEST(UpOptionsTest, NumbersOfTrainingAreFiniteAndNotNegative) {
  const double kBad[] = {std::nan(""), std::numeric_limits<double>::infinity(), -1.0};
  const std::pair<const char*, double UpOptions::*> kFlags[] = {
      {"--lr", &UpOptions::learning_rate},
      {"--min-lr", &UpOptions::minimum_learning_rate},
      {"--weight-decay", &UpOptions::weight_decay},
      {"--clip-norm", &UpOptions::clip_norm}};
  for (const auto& [flag, option] : kFlags) {
    for (const double bad : kBad) {
      UpOptions options;
      options.*option = bad;
      EXPECT_THAT(std::string(MakeJobSpec(options, SmallModel()).status().message()), HasSubstr(flag));
    }
  }
  UpOptions options;
  options.warmup = UINT64_MAX;
  EXPECT_THAT(std::string(MakeJobSpec(options, SmallModel()).status().message()), HasSubstr("--warmup"));
}

TEST(UpOptionsTest, SizesOfTheModelAreBounded) {
  const std::pair<const char*, uint32_t UpOptions::*> kFlags[] = {
      {"--layers", &UpOptions::layers},
      {"--hidden", &UpOptions::hidden},
      {"--heads", &UpOptions::heads},
      {"--attention-inner", &UpOptions::attention_inner},
      {"--ffn", &UpOptions::ffn}};
  for (const auto& [flag, option] : kFlags) {
    UpOptions options;
    options.*option = UINT32_MAX;
    EXPECT_THAT(std::string(ModelOfFlags(options, 64).status().message()), HasSubstr(flag));
  }
  EXPECT_THAT(std::string(ModelOfFlags(UpOptions(), UINT32_MAX).status().message()), HasSubstr("--vocab"));
  UpOptions options;
  options.limits.max_target = UINT32_MAX;
  EXPECT_THAT(std::string(ModelOfFlags(options, 64).status().message()), HasSubstr("--max-target"));
}

TEST(UpOptionsTest, TheMeshIsBoundedBeforeItsWorkersAreCounted) {
  UpOptions options = SimulatedRows();
  options.pipeline = 1U << 16;
  options.data = 1U << 16;  // their product is 0 in 32 bits
  EXPECT_THAT(std::string(CheckDevice(options).message()), HasSubstr("--pp 65536"));
  options.pipeline = 1024;
  options.data = 4096;
  EXPECT_THAT(std::string(CheckDevice(options).message()), HasSubstr("at most 65536"));
}

TEST(UpOptionsTest, WorkersAreCountedOverStageGroups) {
  UpOptions options;
  options.pipeline = 2;
  options.data = 3;
  options.tensor = 2;
  options.context = 4;
  EXPECT_EQ(WorkerCount(options), 48u);
  const auto job = MakeJobSpec(options, SmallModel());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->mesh().tensor(), 2);
  EXPECT_EQ(job->mesh().context(), 4);
}

TEST(UpOptionsTest, RanksValidateOnAStrategyOfOneMesh) {
  UpOptions options;
  UseStrategies(*ReadStrategies("pp 2 + pp 1"), &options);
  EXPECT_TRUE(MakeJobSpec(options, SmallModel()).ok());
  options.validation = {{"data", "data"}};
  EXPECT_TRUE(MakeJobSpec(options, SmallModel()).ok()) << "its checkpoints are validated";
  options.validate_every = 50;
  EXPECT_THAT(std::string(MakeJobSpec(options, SmallModel()).status().message()),
              HasSubstr("--validate-every and --strategies"));
  UseStrategies(*ReadStrategies("pp 2 + pp 1; dp 3"), &options);
  EXPECT_TRUE(MakeJobSpec(options, SmallModel()).ok());
}

TEST(UpOptionsTest, EachRankHasAGpuOfItsHost) {
  UpOptions options;
  options.pipeline = 4;
  ASSERT_TRUE(FindGpus(&options).ok());
  EXPECT_THAT(options.gpus, testing::IsEmpty()) << "on CPU";
  options.device = *ParseDevices("cuda");
  ASSERT_TRUE(FindGpus(&options).ok());
  EXPECT_THAT(options.gpus, testing::ElementsAre(0, 1, 2, 3));
  options.device = *ParseDevices("cuda:2,3");
  EXPECT_THAT(std::string(FindGpus(&options).message()), HasSubstr("2 GPUs for 4 workers"));
  options.hosts = {"a", "a", "b", "b"};
  ASSERT_TRUE(FindGpus(&options).ok());
  EXPECT_THAT(options.gpus, testing::ElementsAre(2, 3, 2, 3));
}

TEST(UpOptionsTest, BesideAGpuAWorkerHasFewThreadsUnlessTheUserChooses) {
  UpOptions options;
  options.device = *ParseDevices("cuda:0");
  EXPECT_LE(ThreadsOfEachWorker(options), 4);
  options.threads = 9;
  EXPECT_EQ(ThreadsOfEachWorker(options), 9);
}

TEST(UpOptionsTest, DataAndProfileFitTheDevice) {
  EXPECT_TRUE(CheckDevice(SimulatedRows()).ok());
  const auto changed = [](UpOptions options, const auto& change) {
    change(options);
    return std::string(CheckDevice(options).message());
  };
  EXPECT_THAT(changed(UpOptions(), [](UpOptions&) {}), HasSubstr("--dataset is required"));
  EXPECT_THAT(changed(SimulatedRows(), [](UpOptions& up) { up.rows.clear(); }),
              HasSubstr("--lengths and --rows"));
  EXPECT_THAT(changed(SimulatedRows(), [](UpOptions& up) { up.dataset = "d"; }),
              HasSubstr("either --dataset"));
  EXPECT_THAT(changed(SimulatedRows(), [](UpOptions& up) { up.profile.clear(); }),
              HasSubstr("give --profile"));
  EXPECT_THAT(changed(SimulatedRows(), [](UpOptions& up) { up.device.kind = UpDevice::kCpu; }),
              HasSubstr("--lengths is for --device simulated"));
  EXPECT_THAT(changed(SimulatedRows(),
                      [](UpOptions& up) {
                        up.simulation.slow_ranks = {{1, 2}};
                      }),
              HasSubstr("--slow-rank: there is no rank 1"));
}

TEST(UpOptionsTest, TheCapacityOfExpertsIsThatOfTheFlagOrTheModels) {
  UpOptions options;
  options.experts = 4;
  v1::ModelSpec model = *ModelOfFlags(options, 64);
  model.set_expert_capacity_factor(1.25);
  EXPECT_EQ(MakeJobSpec(options, model)->model().expert_capacity_factor(), 1.25);
  options.expert_capacity = 0;
  EXPECT_EQ(MakeJobSpec(options, model)->model().expert_capacity_factor(), 0);
  options.expert_capacity = -1;
  EXPECT_THAT(std::string(MakeJobSpec(options, model).status().message()),
              HasSubstr("--expert-capacity -1: must be a number of at least 0"));
  options.expert_capacity = 1;
  EXPECT_THAT(std::string(MakeJobSpec(options, SmallModel()).status().message()),
              HasSubstr("--expert-capacity: the model has no experts"));
}

}  // namespace
}  // namespace penstock::cli
