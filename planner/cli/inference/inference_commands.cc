// `penstock generate` and `penstock evaluate`: what a trained model says, and how well it predicts. Both run
// penstock-worker, which has LibTorch, in place of this process.
#include "planner/cli/inference/inference_commands.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/dataset/named_datasets.h"
#include "common/process/binary_folder.h"
#include "common/status/status_macros.h"
#include "planner/cli/inference/prompt.h"
#include "planner/cli/model/kept_files.h"
#include "planner/cli/model/model_folder.h"
#include "planner/cli/tokenizer/model_tokenizer.h"

namespace penstock::cli {
namespace {

struct InferenceFlags {
  // Folder of a run or of an imported model.
  std::string from;
  // 0: the cores of this machine.
  uint32_t threads = 0;
  std::string device = "cpu";
};

struct GenerateFlags {
  InferenceFlags inference;
  PromptRequest prompt;
  // 0: kTokens, or what the model has positions for.
  uint64_t max_tokens = 0;
  double temperature = 0;
  double top_p = 1;
  uint64_t seed = 1;
  bool no_stop = false;
};

struct EvaluateFlags {
  InferenceFlags inference;
  std::string dataset;
  uint64_t samples = 0;
  uint64_t max_length = 0;
  bool json = false;
};

using Arguments = std::vector<std::string>;

constexpr uint64_t kTokens = 64;

// Learned positions end; whoever does not say how many tokens he wants gets those that are left.
uint64_t TokensToAskFor(const v1::ModelSpec& model, const Prompt& prompt) {
  const bool learned =
      model.architecture() == v1::ARCHITECTURE_GPT &&
      (model.position() == v1::POSITION_LEARNED || model.position() == v1::POSITION_UNSPECIFIED);
  const uint64_t taken = prompt.tokens.size();
  if (!learned || taken >= model.max_sequence_length()) return kTokens;
  return std::min(kTokens, model.max_sequence_length() - taken);
}

absl::StatusOr<Arguments> WorkerCommand(const std::string& command, const InferenceFlags& flags,
                                        const ModelFolder& folder) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string binaries, BinaryFolder());
  const std::string worker = absl::StrCat(binaries, "/penstock-worker");
  if (!std::filesystem::exists(worker))
    return absl::UnavailableError(absl::StrCat("penstock-worker is not in ", binaries, ": build it"));
  const uint32_t threads =
      flags.threads > 0 ? flags.threads : std::max(1U, std::thread::hardware_concurrency());
  Arguments arguments = {worker,
                         command,
                         absl::StrCat("--model-json=", ModelFile(flags.from)),
                         absl::StrCat("--checkpoint=", folder.checkpoint),
                         absl::StrCat("--threads=", threads),
                         absl::StrCat("--device=", flags.device)};
  if (!folder.base.empty()) arguments.push_back(absl::StrCat("--base=", folder.base));
  return arguments;
}

// Does not return where it succeeds.
absl::Status Become(const Arguments& arguments) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  std::cout.flush();
  execv(pointers.front(), pointers.data());
  return absl::UnavailableError(absl::StrCat("starting ", arguments.front(), ": ", strerror(errno)));
}

absl::Status RunGenerate(const GenerateFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const ModelFolder folder, OpenModelFolder(flags.inference.from));
  std::unique_ptr<TokenizerProcess> tokenizer;
  if (flags.prompt.tokens.empty() && HasTokenizer(flags.inference.from)) {
    PENSTOCK_ASSIGN_OR_RETURN(tokenizer, StartTokenizer(flags.inference.from));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Prompt prompt, PromptOf(folder.model, flags.prompt, tokenizer.get()));
  PENSTOCK_ASSIGN_OR_RETURN(Arguments arguments, WorkerCommand("generate", flags.inference, folder));
  arguments.push_back(absl::StrCat("--tokens=", absl::StrJoin(prompt.tokens, ",")));
  arguments.push_back(absl::StrCat(
      "--max-tokens=", flags.max_tokens > 0 ? flags.max_tokens : TokensToAskFor(folder.model, prompt)));
  arguments.push_back(absl::StrCat("--temperature=", flags.temperature));
  arguments.push_back(absl::StrCat("--top-p=", flags.top_p));
  arguments.push_back(absl::StrCat("--seed=", flags.seed));
  if (prompt.as_bytes) arguments.emplace_back("--as-bytes");
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<int32_t> ends, EndTokens(flags.inference.from));
  if (tokenizer != nullptr) {
    arguments.push_back(absl::StrCat("--tokenizer=", KeptFile(flags.inference.from, "")));
    if (ends.empty() && tokenizer->info().end >= 0) ends = {tokenizer->info().end};
  }
  if (!flags.no_stop && !ends.empty())
    arguments.push_back(absl::StrCat("--stop-tokens=", absl::StrJoin(ends, ",")));
  return Become(arguments);
}

absl::Status RunEvaluate(const EvaluateFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const ModelFolder folder, OpenModelFolder(flags.inference.from));
  PENSTOCK_ASSIGN_OR_RETURN(Arguments arguments, WorkerCommand("evaluate", flags.inference, folder));
  arguments.push_back(absl::StrCat("--dataset=", flags.dataset));
  arguments.push_back(absl::StrCat("--samples=", flags.samples));
  arguments.push_back(absl::StrCat("--max-length=", flags.max_length));
  if (flags.json) arguments.emplace_back("--json");
  return Become(arguments);
}

void AddInferenceFlags(CLI::App* command, InferenceFlags& flags) {
  command
      ->add_option("FROM", flags.from,
                   "Folder of a run, whose newest checkpoint is taken, or of penstock model import")
      ->required();
  command->add_option("--threads", flags.threads, "Threads that compute (default: one a core)")
      ->check(CLI::Range(1u, 1024u));
  command->add_option("--device", flags.device, "cpu, or cuda:N")->capture_default_str();
}

}  // namespace

void AddGenerateCommand(CommandSet& commands) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command =
      commands.Add({.name = "generate",
                    .purpose = "Goes on with a text, with a model that was trained",
                    .examples = "penstock generate runs/text \"To be\"\n"
                                "penstock generate runs/text \"To be\" --temperature 0.8 "
                                "--top-p 0.95 --max-tokens 200\n"
                                "penstock generate models/qwen --chat \"What is a penstock?\"\n"
                                "penstock generate models/llama --tokens 1,15043,29892"});
  AddInferenceFlags(command, flags->inference);
  CLI::Option* const prompt = command->add_option(
      "PROMPT", flags->prompt.text,
      "The beginning of the text, or what a T5 reads: as tokens of the tokenizer that came "
      "with the model, or as bytes, as `penstock dataset import` takes text");
  command->add_flag("--chat", flags->prompt.chat,
                    "PROMPT is a user's message, written as the model's chat template does; what follows is "
                    "the answer");
  command
      ->add_option("--tokens", flags->prompt.tokens,
                   "The same as tokens; those that follow are printed as such")
      ->delimiter(',')
      ->excludes(prompt);
  command
      ->add_option("--max-tokens", flags->max_tokens,
                   "Tokens to ask for (64, or those that the model still has positions for)")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 24));
  command
      ->add_option("--temperature", flags->temperature,
                   "0: always the most probable token; 1: drawn as the model says")
      ->check(CLI::Range(0.0, 1e3))
      ->capture_default_str();
  command
      ->add_option("--top-p", flags->top_p,
                   "Draw among the most probable tokens that have this share of the probability together")
      ->check(CLI::Range(1e-6, 1.0))
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "What tokens are drawn by")->capture_default_str();
  command->add_flag("--no-stop", flags->no_stop,
                    "Go on behind the end of the text (eos_token_id of the model's configuration)");
  commands.OnRun(command, [flags] { return RunGenerate(*flags); });
}

void AddEvaluateCommand(CommandSet& commands) {
  auto flags = std::make_shared<EvaluateFlags>();
  CLI::App* command = commands.Add(
      {.name = "evaluate",
       .purpose = "The loss of a model on a dataset, without training on it",
       .examples = "penstock evaluate runs/mix --dataset data/validation\n"
                   "penstock evaluate runs/mix --dataset data/flan-v,data/code-v\n"
                   "penstock evaluate models/llama --dataset data/validation --samples 1000 --json"});
  AddInferenceFlags(command, flags->inference);
  command
      ->add_option(
          "--dataset", flags->dataset,
          "Path of the dataset, without .idx and .bin; of several, [NAME:]PATH,..., also the loss of "
          "each")
      ->check([](const std::string& text) { return std::string(ParseDatasets(text).status().message()); })
      ->required();
  command->add_option("--samples", flags->samples, "So many samples of each dataset, spread over it; 0: all")
      ->capture_default_str();
  command
      ->add_option("--max-length", flags->max_length,
                   "Tokens beyond which a sample's input loses its end, then its target; 0: the model's "
                   "positions")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 24))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "One JSON object");
  commands.OnRun(command, [flags] { return RunEvaluate(*flags); });
}

}  // namespace penstock::cli
