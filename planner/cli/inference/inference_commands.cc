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
#include "common/status/status_macros.h"
#include "planner/cli/inference/prompt.h"
#include "planner/cli/model/model_folder.h"
#include "planner/cli/up/machine.h"

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
  std::string prompt;
  std::vector<int32_t> tokens;
  uint64_t max_tokens = 64;
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

absl::StatusOr<Arguments> WorkerCommand(const std::string& command, const InferenceFlags& flags,
                                        const ModelFolder& folder) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string binaries, BinaryFolder());
  const std::string worker = absl::StrCat(binaries, "/penstock-worker");
  if (!std::filesystem::exists(worker))
    return absl::UnavailableError(absl::StrCat("penstock-worker is not in ", binaries, ": build it"));
  const uint32_t threads =
      flags.threads > 0 ? flags.threads : std::max(1U, std::thread::hardware_concurrency());
  return Arguments{worker,
                   command,
                   absl::StrCat("--model-json=", ModelFile(flags.from)),
                   absl::StrCat("--checkpoint=", folder.checkpoint),
                   absl::StrCat("--threads=", threads),
                   absl::StrCat("--device=", flags.device)};
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
  PENSTOCK_ASSIGN_OR_RETURN(const Prompt prompt,
                            PromptOf(flags.inference.from, folder.model, flags.prompt, flags.tokens));
  PENSTOCK_ASSIGN_OR_RETURN(Arguments arguments, WorkerCommand("generate", flags.inference, folder));
  arguments.push_back(absl::StrCat("--tokens=", absl::StrJoin(prompt.tokens, ",")));
  arguments.push_back(absl::StrCat("--max-tokens=", flags.max_tokens));
  arguments.push_back(absl::StrCat("--temperature=", flags.temperature));
  arguments.push_back(absl::StrCat("--top-p=", flags.top_p));
  arguments.push_back(absl::StrCat("--seed=", flags.seed));
  if (prompt.as_bytes) arguments.emplace_back("--as-bytes");
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> ends, EndTokens(flags.inference.from));
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
  CLI::App* command = commands.Add({.name = "generate",
                                    .purpose = "Goes on with a text, with a model that was trained",
                                    .examples = "penstock generate runs/text \"To be\"\n"
                                                "penstock generate runs/text \"To be\" --temperature 0.8 "
                                                "--top-p 0.95 --max-tokens 200\n"
                                                "penstock generate models/llama --tokens 1,15043,29892"});
  AddInferenceFlags(command, flags->inference);
  CLI::Option* const prompt =
      command->add_option("PROMPT", flags->prompt,
                          "The beginning of the text, or what a T5 reads: its bytes are the tokens, as "
                          "`penstock dataset import` makes them of text");
  command->add_option("--tokens", flags->tokens, "The same as tokens; those that follow are printed as such")
      ->delimiter(',')
      ->excludes(prompt);
  command->add_option("--max-tokens", flags->max_tokens, "Tokens to ask for")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 24))
      ->capture_default_str();
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
                   "penstock evaluate models/llama --dataset data/validation --samples 1000 --json"});
  AddInferenceFlags(command, flags->inference);
  command->add_option("--dataset", flags->dataset, "Path of the dataset, without .idx and .bin")->required();
  command->add_option("--samples", flags->samples, "So many samples, spread over the dataset; 0: all")
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
