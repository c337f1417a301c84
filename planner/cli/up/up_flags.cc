#include "planner/cli/up/up_flags.h"

#include <CLI/CLI.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/dataset/named_datasets.h"
#include "common/status/status_macros.h"
#include "planner/cli/choice_flag.h"
#include "planner/cli/planning_flags.h"
#include "planner/cli/strategy_list.h"

namespace penstock::cli {
namespace {

const Names<v1::DataType>& DataTypes() {
  static const auto* types = new Names<v1::DataType>{{"float64", v1::DATA_TYPE_FLOAT64},
                                                     {"float32", v1::DATA_TYPE_FLOAT32},
                                                     {"bfloat16", v1::DATA_TYPE_BFLOAT16}};
  return *types;
}

void AddDataFlags(CLI::App& command, UpOptions& up) {
  command.add_option("--dataset", up.dataset,
                     "Token dataset: the path without .idx and .bin (see penstock dataset import)");
  command
      .add_option_function<std::string>(
          "--mix",
          [&up](const std::string& text) {
            up.mix = ParseMixture(text).value_or(std::vector<MixtureTask>());
          },
          "Several datasets with their shares of the samples of each global batch, in place of --dataset, as "
          "in data/flan=0.7,code:data/code/train=0.3; a name before a colon is the task's (default: the last "
          "part of the path)")
      ->check([](const std::string& text) { return std::string(ParseMixture(text).status().message()); })
      ->option_text("[NAME:]PATH=WEIGHT,...");
  command.add_option("--lengths", up.lengths,
                     "Simulated devices: CSV with columns input_tokens,target_tokens or tokens, instead of a "
                     "dataset");
  command.add_option(
      "--rows", up.rows,
      "With --lengths: rows A:B of the first global batch; the next ones follow, and start over "
      "at the end");
  command.add_option("--global-batch", up.global_batch, "Samples of an iteration, over all replicas")
      ->capture_default_str();
  command.add_option("--max-length", up.limits.max_length,
                     "Longer samples are cut to so many tokens; encoder-decoder: each side (2048; simulated "
                     "devices: none are cut)");
  AddCutFlag(command, up.limits.cut);
  command.add_option("--max-input", up.limits.max_input, "Encoder-decoder: cut inputs to this many tokens");
  command.add_option("--max-target", up.limits.max_target,
                     "Encoder-decoder: cut targets to this many tokens");
  command.add_option("--iterations", up.iterations, "Iterations of the whole run")->capture_default_str();
  command
      .add_option("--epochs", up.epochs,
                  "In place of --iterations: as many as pass so often through the dataset")
      ->check(CLI::PositiveNumber);
}

void AddPlanFlags(CLI::App& command, UpOptions& up) {
  command.add_option("--pp", up.pipeline, "Pipeline stages")->capture_default_str();
  command.add_option("--dp", up.data, "Replicas of the pipeline")->capture_default_str();
  command.add_option("--tp", up.tensor, "Tensor ranks of a stage, which divide its layers")
      ->capture_default_str();
  command.add_option("--cp", up.context, "Context ranks of a stage, which divide the tokens; a power of two")
      ->capture_default_str();
  command
      .add_option("--ep", up.expert,
                  "Ranks of a stage that divide the experts; divides --cp x --tp, a multiple of --tp")
      ->capture_default_str();
  AddStrategiesFlag(command, up.strategies_text,
                    "; auto: a pool is proposed for the first batches, for as many ranks as these flags say");
  AddPolicyFlag(command, up.policy);
  up.planning.AddTo(command);
  command.add_option(
      "--look-ahead", up.look_ahead,
      "Iterations planned ahead of the slowest rank (default: what ranks do in 1 s, 4 to 16; with "
      "--fixed-costs 16)");
  command.add_flag(
      "--fixed-costs", up.fixed_costs,
      "Plan every iteration with the profile, the same in every run; otherwise costs follow what the "
      "workers measure");
  command.add_option("--profile", up.profile,
                     "Cost profile (default: measured on this machine once, then cached)");
  command.add_option("--profile-seconds", up.profile_seconds, "Time for measuring a profile")
      ->capture_default_str();
}

const Names<v1::FeedForward>& FeedForwards() {
  static const auto* kinds = new Names<v1::FeedForward>{{"relu", v1::FEED_FORWARD_RELU},
                                                        {"gelu", v1::FEED_FORWARD_GELU},
                                                        {"gated-gelu", v1::FEED_FORWARD_GATED_GELU},
                                                        {"gated-silu", v1::FEED_FORWARD_GATED_SILU}};
  return *kinds;
}

const Names<v1::RateDecay>& RateDecays() {
  static const auto* decays = new Names<v1::RateDecay>{{"cosine", v1::RATE_DECAY_COSINE},
                                                       {"linear", v1::RATE_DECAY_LINEAR},
                                                       {"constant", v1::RATE_DECAY_CONSTANT},
                                                       {"cooldown", v1::RATE_DECAY_COOLDOWN}};
  return *decays;
}

const Names<v1::Architecture>& Architectures() {
  static const auto* architectures =
      new Names<v1::Architecture>{{"gpt", v1::ARCHITECTURE_GPT}, {"t5", v1::ARCHITECTURE_T5}};
  return *architectures;
}

void AddDeviceFlag(CLI::App& command, UpOptions& up) {
  command
      .add_option_function<std::string>(
          "--device",
          [&up](const std::string& text) { up.device = ParseDevices(text).value_or(DeviceList()); },
          "What the workers run on; cuda: a GPU for each, from cuda:0 on, cuda:0..3 or cuda:0,2,5: these, "
          "one a "
          "worker; simulated: a dry run that takes model and times of --profile (cpu)")
      ->check([](const std::string& text) { return std::string(ParseDevices(text).status().message()); })
      ->option_text("cpu|cuda[:N..M,...]|simulated");
}

void AddModelFlags(CLI::App& command, UpOptions& up) {
  command.add_option(
      "--model", up.model,
      "Hugging Face's config.json, or a folder with one (a Gemma, GPT-2, Granite, Llama, Mistral, OLMo, Phi, "
      "Qwen, T5 and others: a family that is not known is refused with those that are); in place of the "
      "flags "
      "below");
  command.add_option("--init-from", up.init_from,
                     "Folder of penstock model import, or of a run: the model, and the parameters to begin "
                     "with");
  up.adapters.AddTo(command);
  AddChoice(command, "--architecture", up.architecture, Architectures(), "Kind of model (gpt)");
  command.add_option("--layers", up.layers, "Transformer blocks")->capture_default_str();
  command.add_option("--encoder-layers", up.encoder_layers, "T5: layers of the encoder")
      ->capture_default_str();
  command.add_option("--decoder-layers", up.decoder_layers, "T5: layers of the decoder")
      ->capture_default_str();
  command.add_option("--hidden", up.hidden, "Width of the model")->capture_default_str();
  command.add_option("--heads", up.heads, "Attention heads")->capture_default_str();
  command.add_option("--ffn", up.ffn, "Inner width of the feed-forward layers")->capture_default_str();
  command
      .add_option("--experts", up.experts,
                  "Experts of each layer in place of a dense feed-forward layer, each of the inner width "
                  "--ffn; 0: dense")
      ->capture_default_str();
  command.add_option("--experts-per-token", up.experts_per_token, "Experts that a token goes to")
      ->capture_default_str();
  command
      .add_option("--shared-expert-ffn", up.shared_expert_ffn,
                  "Inner width of one expert more, which every token goes through; 0: none")
      ->capture_default_str();
  command.add_flag("--gated-shared-expert", up.gated_shared_expert,
                   "A sigmoid for each token multiplies what it gives");
  command
      .add_option("--dense-layers", up.dense_layers,
                  "With --experts: the layers that have none, counted from 1 (1,3,5)")
      ->delimiter(',');
  command.add_option("--dense-ffn", up.dense_ffn, "Inner width of their feed-forward part (that of --ffn)");
  command.add_option("--router-balance-loss", up.router_balance_loss,
                     "Weight of the loss that is added to use experts evenly, of each layer; also with "
                     "--init-from and --model (that of the model, 0)");
  command.add_option("--router-z-loss", up.router_z_loss,
                     "The same of the loss that keeps scores of routers small (that of the model, 0)");
  command.add_option(
      "--expert-capacity", up.expert_capacity,
      "An expert takes so many times an even share of each sample's rows, and drops the others; "
      "0: it takes all (that of the model, 0)");
  command.add_option("--attention-inner", up.attention_inner,
                     "Inner width of attention: heads x width of a head (that of the model)");
  AddChoice(command, "--feed-forward", up.feed_forward, FeedForwards(),
            "Kind of the feed-forward layers (gpt: gelu, t5: relu)");
  command
      .add_option("--decoder-start-token", up.decoder_start_token,
                  "T5: token that the decoder's input begins with")
      ->capture_default_str();
  command.add_option("--vocab", up.vocab,
                     "Size of the vocabulary (default: the dataset's largest token id + 1)");
  AddChoice(command, "--dtype", up.dtype, DataTypes(), "Number format of model and activations (float32)");
}

void AddTrainingFlags(CLI::App& command, UpOptions& up) {
  command.add_option("--seed", up.seed, "Seed of initial values and sample order")->capture_default_str();
  command.add_option("--lr", up.learning_rate, "Peak learning rate")->capture_default_str();
  command.add_option("--min-lr", up.minimum_learning_rate, "Learning rate at the end of the decay")
      ->capture_default_str();
  command.add_option("--warmup", up.warmup, "Iterations of linear warm-up")->capture_default_str();
  AddChoice(
      command, "--lr-decay", up.rate_decay, RateDecays(),
      "How the learning rate falls to --min-lr until the last iteration (cosine); cooldown: stays at its "
      "peak, and falls linearly over the last --cooldown iterations");
  command.add_option("--cooldown", up.cooldown, "Iterations of it; 0: a fifth of all")->capture_default_str();
  command.add_option("--beta1", up.beta1, "AdamW: decay of the mean of the gradients")->capture_default_str();
  command.add_option("--beta2", up.beta2, "AdamW: decay of the mean of their squares")->capture_default_str();
  command.add_option("--epsilon", up.epsilon, "AdamW: what is added to the root of the mean of squares")
      ->capture_default_str();
  command.add_option("--weight-decay", up.weight_decay, "AdamW: weight decay of matrices")
      ->capture_default_str();
  command.add_option("--clip-norm", up.clip_norm, "Largest global gradient norm; 0: no clipping")
      ->capture_default_str();
  command
      .add_option("--checkpoint-every", up.checkpoint_every,
                  "Iterations between checkpoints; 0: only at the end and when the run is stopped")
      ->capture_default_str();
}

// Flags that describe a model, and `more`, where the model is given otherwise.
absl::Status RefuseModelFlags(const CLI::App& command, std::vector<const char*> more, absl::string_view why) {
  std::vector<const char*> flags = {"--architecture",
                                    "--layers",
                                    "--encoder-layers",
                                    "--decoder-layers",
                                    "--hidden",
                                    "--heads",
                                    "--attention-inner",
                                    "--ffn",
                                    "--experts",
                                    "--experts-per-token",
                                    "--shared-expert-ffn",
                                    "--gated-shared-expert",
                                    "--dense-layers",
                                    "--dense-ffn",
                                    "--feed-forward",
                                    "--decoder-start-token",
                                    "--vocab"};
  flags.insert(flags.end(), more.begin(), more.end());
  for (const char* flag : flags) {
    if (command.get_option(flag)->count() == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(flag, ": ", why));
  }
  return absl::OkStatus();
}

absl::Status CheckIterationsAreGivenOnce(const CLI::App& command, const UpOptions& up) {
  if (up.epochs == 0) return absl::OkStatus();
  if (command.get_option("--iterations")->count() > 0)
    return absl::InvalidArgumentError("--epochs and --iterations exclude each other: give one");
  if (!up.dataset.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--epochs counts passes through one --dataset: give --iterations (of a --mix the first lines of the "
      "run "
      "say how many epochs of each dataset they are)");
}

// A flag that would have no effect is a misunderstanding.
absl::Status CheckModelFitsDevice(const CLI::App& command, const UpOptions& up) {
  if (!IsSimulated(up)) return absl::OkStatus();
  return RefuseModelFlags(
      command,
      {"--model", "--init-from", "--dtype", "--router-balance-loss", "--router-z-loss", "--expert-capacity"},
      "with --device simulated the model is that of --profile");
}

// What is drawn by chance is nothing to adapt.
absl::Status CheckAdaptersHaveAModel(const UpOptions& up) {
  if (!up.adapters.any() || IsSimulated(up) || !up.init_from.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--lora-rank: adapters are for a model that was trained; give --init-from (a folder of penstock model "
      "import, or of a run)");
}

absl::Status CheckModelIsGivenOnce(const CLI::App& command, const UpOptions& up) {
  if (!up.model.empty() && !up.init_from.empty())
    return absl::InvalidArgumentError("--model: the model is that of --init-from; leave it out");
  if (!GivesWholeModel(up)) return absl::OkStatus();
  return RefuseModelFlags(
      command, {}, absl::StrCat("the model is that of ", up.model.empty() ? "--init-from" : "--model"));
}

// They say what these flags say, each of its own.
absl::Status ReadStrategiesFlag(const CLI::App& command, UpOptions& up) {
  if (up.strategies_text.empty()) return absl::OkStatus();
  if (up.strategies_text == kProposedStrategies) {
    up.planning.parameter_shares = true;
    return absl::OkStatus();
  }
  for (const char* flag : MeshFlags()) {
    if (command.get_option(flag)->count() == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": each of --strategies says it of its own; leave it out"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<v1::Strategy> strategies, ReadStrategies(up.strategies_text));
  UseStrategies(std::move(strategies), &up);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDataIsGivenOnce(const CLI::App& command) {
  for (const char* flag : {"--dataset", "--mix"}) {
    if (command.get_option(flag)->count() <= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag,
                     " is given twice, and the last one alone would be trained on: for several "
                     "datasets give their weights, --mix PATH=WEIGHT,PATH=WEIGHT"));
  }
  return absl::OkStatus();
}

void AddJobFlags(CLI::App& command, UpOptions& up) {
  AddDataFlags(command, up);
  AddPlanFlags(command, up);
  AddDeviceFlag(command, up);
  AddModelFlags(command, up);
  AddTrainingFlags(command, up);
}

void AddValidationFlags(CLI::App& command, const std::string& otherwise, UpOptions& up) {
  command
      .add_option_function<std::string>(
          "--validation",
          [&up](const std::string& text) {
            up.validation = ParseDatasets(text).value_or(std::vector<NamedDataset>());
          },
          "Dataset that is not trained on, and whose loss is found. Several, separated by commas: a loss for "
          "each")
      ->check([](const std::string& text) { return std::string(ParseDatasets(text).status().message()); })
      ->option_text("[NAME:]PATH,...");
  command
      .add_option("--validate-every", up.validate_every,
                  absl::StrCat("The ranks find the loss on --validation after so many iterations, and after "
                               "the last; 0: ",
                               otherwise))
      ->capture_default_str();
  command
      .add_option("--validation-samples", up.validation_samples,
                  "So many samples of each, spread over it; 0: all")
      ->capture_default_str();
}

bool GivesWholeModel(const UpOptions& up) { return !up.model.empty() || !up.init_from.empty(); }

absl::Status ReadJobFlags(const CLI::App& command, UpOptions& up) {
  PENSTOCK_RETURN_IF_ERROR(CheckDataIsGivenOnce(command));
  PENSTOCK_RETURN_IF_ERROR(CheckIterationsAreGivenOnce(command, up));
  PENSTOCK_RETURN_IF_ERROR(CheckModelFitsDevice(command, up));
  PENSTOCK_RETURN_IF_ERROR(CheckModelIsGivenOnce(command, up));
  PENSTOCK_RETURN_IF_ERROR(CheckAdaptersHaveAModel(up));
  PENSTOCK_RETURN_IF_ERROR(ReadStrategiesFlag(command, up));
  up.dtype_given = command.get_option("--dtype")->count() > 0;
  return absl::OkStatus();
}

}  // namespace penstock::cli
