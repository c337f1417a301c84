// Compares what Penstock computes with what transformers computed, for the folders that
// tests/frameworks/families/reference.py made: losses of all steps, gradients of the first, parameters after
// the last, logits, and the export bit by bit and field by field. A configuration that is to be refused must
// be, by the field.
//
//   compare_families FOLDER TOLERANCE     # a line of JSON each, and the worst; exits with 1 where one is
//   beyond
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/export_model.h"
#include "planner/cli/model/import_model.h"
#include "planner/cli/model/model_folder.h"
#include "planner/core/contract/check_model.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/worker/hugging_face/golden_model.h"
#include "tests/unit/worker/model_testing.h"
#include "worker/checkpoint/initial_values.h"
#include "worker/inference/language_model.h"
#include "worker/inference/packed_samples.h"
#include "worker/optimizer/adamw.h"
#include "worker/program/from_proto.h"

namespace penstock::worker {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// As of reference.py.
TrainingConfig Training() {
  TrainingConfig config;
  config.learning_rate.peak = 1e-3;
  config.learning_rate.decay = RateDecay::kConstant;
  config.beta1 = 0.9;
  config.beta2 = 0.95;
  config.epsilon = 1e-3;
  config.weight_decay = 0.1;
  return config;
}

struct Imported {
  ModelConfig config;
  std::string parameters;
};

absl::StatusOr<Imported> ImportTo(const std::string& from, const std::string& to) {
  PENSTOCK_RETURN_IF_ERROR(cli::ImportModel(from, to).status());
  PENSTOCK_ASSIGN_OR_RETURN(const cli::ModelFolder folder, cli::OpenModelFolder(to));
  PENSTOCK_RETURN_IF_ERROR(core::CheckModel(folder.model));
  Imported imported;
  PENSTOCK_ASSIGN_OR_RETURN(imported.config, ModelFromProto(folder.model));
  imported.parameters = folder.checkpoint;
  return imported;
}

// What a checkpoint has for parameters, whose values it fills.
absl::Status ReadInto(const std::string& checkpoint, const std::map<std::string, at::Tensor>& values) {
  std::vector<TensorPiece> pieces;
  for (const auto& [name, value] : values)
    pieces.push_back({WholeSlice(name, value.sizes().vec()), 0, value});
  return ReadInitialValues(checkpoint, pieces);
}

std::map<std::string, at::Tensor> ValuesOf(Stage& stage) {
  std::map<std::string, at::Tensor> values;
  for (const NamedParameter& parameter : stage.parameters()) values[parameter.name] = parameter.value;
  return values;
}

double LargestOf(const at::Tensor& tensor) { return tensor.to(at::kDouble).abs().max().item<double>(); }

// Relative to the largest of each tensor, or to a thousandth of the largest of all: some gradients are 0 but
// for rounding.
double LargestDifference(const std::map<std::string, at::Tensor>& found,
                         const std::map<std::string, at::Tensor>& expected) {
  double difference = 0;
  double least = 0;
  for (const auto& [name, tensor] : expected) least = std::max(least, LargestOf(tensor) / 1000);
  for (const auto& [name, tensor] : expected) {
    const at::Tensor wide = tensor.to(at::kDouble);
    const double largest = std::max(wide.abs().max().item<double>(), 1e-6);
    difference =
        std::max(difference, (found.at(name).to(at::kDouble) - wide).abs().max().item<double>() / largest);
  }
  return difference;
}

struct Samples {
  std::vector<TestSample> shapes;
  Tokens tokens;
};

Samples SamplesOf(const json& expected) {
  Samples samples;
  for (const json& sample : expected["samples"]) {
    auto tokens = sample["input"].get<std::vector<int32_t>>();
    const auto target = sample["target"].get<std::vector<int32_t>>();
    samples.shapes.push_back({static_cast<uint32_t>(tokens.size()), static_cast<uint32_t>(target.size())});
    tokens.insert(tokens.end(), target.begin(), target.end());
    samples.tokens.push_back(std::move(tokens));
  }
  return samples;
}

// Of one configuration: what transformers computed, the same in float64, and where imports go.
struct Folders {
  std::string from;
  std::string exact;
  std::string work;
};

// Differences of one configuration, by what differs.
using Differences = std::map<std::string, double>;

// Where gradients are, of a folder: those of transformers, like ours but for the type.
absl::StatusOr<std::map<std::string, at::Tensor>> GradientsIn(const std::string& folder,
                                                              const std::string& work,
                                                              const std::map<std::string, at::Tensor>& ours,
                                                              at::ScalarType type) {
  PENSTOCK_ASSIGN_OR_RETURN(const Imported gradients, ImportTo(folder + "/gradients", work));
  std::map<std::string, at::Tensor> theirs;
  for (const auto& [name, gradient] : ours) theirs[name] = at::empty(gradient.sizes(), type);
  PENSTOCK_RETURN_IF_ERROR(ReadInto(gradients.parameters, theirs));
  return theirs;
}

absl::Status CompareGradients(const Folders& folders, const std::map<std::string, at::Tensor>& ours,
                              Differences& differences) {
  const at::ScalarType type = ours.begin()->second.scalar_type();
  PENSTOCK_ASSIGN_OR_RETURN(const auto theirs,
                            GradientsIn(folders.from, folders.work + "/gradients", ours, type));
  PENSTOCK_ASSIGN_OR_RETURN(const auto exact,
                            GradientsIn(folders.exact, folders.work + "/exact", ours, at::kDouble));
  differences["gradients"] = LargestDifference(ours, theirs);
  differences["gradients, ours to exact"] = LargestDifference(ours, exact);
  differences["gradients, theirs to exact"] = LargestDifference(theirs, exact);
  return absl::OkStatus();
}

absl::Status CompareSteps(const Folders& folders, const Imported& model, const json& expected,
                          Differences& differences) {
  const Samples samples = SamplesOf(expected);
  const double loss_tokens = CountLossTokens(model.config, samples.shapes);
  TestPipeline pipeline(model.config, /*seed=*/1, {static_cast<uint32_t>(model.config.layers)});
  Stage& stage = pipeline.stage(0);
  PENSTOCK_RETURN_IF_ERROR(ReadInto(model.parameters, ValuesOf(stage)));
  PENSTOCK_ASSIGN_OR_RETURN(const auto optimizer, AdamW::Create(Training(), {&stage.flat_parameters()}));
  double before = 0;
  const auto losses = expected["losses"].get<std::vector<double>>();
  for (size_t step = 0; step < losses.size(); ++step) {
    pipeline.Run(samples.shapes, samples.tokens, step % 2 == 0 ? Layout::kPacked : Layout::kPadded,
                 {.recompute = {.selective = 1, .full = 1}, .split_backward = step % 3 == 0}, loss_tokens);
    const Result result = pipeline.result();
    const double loss = result.loss - before;
    before = result.loss;
    double& largest = differences[step == 0 ? "loss" : "losses"];
    largest = std::max(largest, std::abs(loss - losses[step]) / losses[step]);
    if (step == 0) PENSTOCK_RETURN_IF_ERROR(CompareGradients(folders, result.gradients, differences));
    PENSTOCK_RETURN_IF_ERROR(optimizer->Step(step, /*gradient_scale=*/1));
    stage.ZeroGradients();
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Imported after, ImportTo(folders.from + "/after", folders.work + "/after"));
  std::map<std::string, at::Tensor> theirs;
  for (const auto& [name, value] : ValuesOf(stage)) theirs[name] = at::empty_like(value);
  PENSTOCK_RETURN_IF_ERROR(ReadInto(after.parameters, theirs));
  differences["parameters"] = LargestDifference(ValuesOf(stage), theirs);
  return absl::OkStatus();
}

absl::Status CompareLogits(const Imported& model, const json& expected, Differences& differences) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto language,
                            LanguageModel::Load(model.config, {model.parameters}, at::kCPU));
  const json& last = expected["samples"].back();
  const SampleTokensOf sample = {last["input"].get<std::vector<int32_t>>(),
                                 last["target"].get<std::vector<int32_t>>()};
  PENSTOCK_ASSIGN_OR_RETURN(const auto tokens, PackSamples(*language, {sample}));
  const at::Tensor all = language->Logits(language->Decode(tokens, language->Encode(tokens)));
  const bool sides = model.config.architecture == Architecture::kT5;
  const int64_t first = sides ? 0 : static_cast<int64_t>(sample.input.size()) - 1;
  const at::Tensor own =
      all.narrow(0, first, static_cast<int64_t>(sample.target.size())).to(at::kDouble).flatten();
  const at::Tensor theirs = at::tensor(expected["logits"].get<std::vector<double>>(), at::kDouble);
  differences["logits"] = (own - theirs).abs().max().item<double>() / theirs.abs().max().item<double>();
  return absl::OkStatus();
}

// Names, types, shapes and bytes of tensors, and the fields of config.json.
absl::StatusOr<bool> IsExportedAsItCame(const std::string& from, const std::string& work) {
  const std::string to = work + "/exported";
  PENSTOCK_RETURN_IF_ERROR(
      cli::ExportModel({.from = work + "/model", .to = to, .most_file_bytes = uint64_t{1} << 32}).status());
  PENSTOCK_ASSIGN_OR_RETURN(const std::string before, ReadFile(from + "/config.json"));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string after, ReadFile(to + "/config.json"));
  return json::parse(before) == json::parse(after) && TensorsOf(from) == TensorsOf(to);
}

struct Verdict {
  std::string text;
  // Refused, and that by the right field.
  bool refused = false;
  bool good = false;
};

// Whether what differs is within the tolerance.
bool IsGood(const Differences& differences, double tolerance) {
  const double rounding = 2 * differences.at("gradients, theirs to exact");
  return std::ranges::all_of(differences, [&](const auto& entry) {
    const bool beside_exact = absl::StrContains(entry.first, "exact");
    const bool rounded = entry.first == "gradients" && differences.at("gradients, ours to exact") <= rounding;
    return beside_exact || rounded || entry.second < tolerance;
  });
}

Verdict Compare(const std::string& from, const std::string& exact, double tolerance, Differences& worst) {
  const TemporaryFolder folder;
  const std::string work = folder.path();
  const auto text = ReadFile(from + "/expected.json");
  if (!text.ok()) return {.text = text.status().ToString()};
  const json expected = json::parse(*text);
  const auto model = ImportTo(from, work + "/model");
  const std::string refused = expected["refused"];
  if (!model.ok()) {
    const bool named = !refused.empty() && absl::StrContains(model.status().message(), refused);
    return {.text = std::string(model.status().message()), .refused = true, .good = named};
  }
  if (!refused.empty()) return {.text = absl::StrCat("is read, but has ", refused)};
  Differences differences;
  absl::Status status = CompareSteps({from, exact, work}, *model, expected, differences);
  if (status.ok()) status = CompareLogits(*model, expected, differences);
  if (!status.ok()) return {.text = status.ToString()};
  const auto same = IsExportedAsItCame(from, work);
  if (!same.ok()) return {.text = same.status().ToString()};
  Verdict verdict = {.text = json(differences).dump(), .refused = false, .good = *same};
  if (!*same) absl::StrAppend(&verdict.text, " the export differs");
  verdict.good = verdict.good && IsGood(differences, tolerance);
  for (const auto& [what, difference] : differences) worst[what] = std::max(worst[what], difference);
  return verdict;
}

int CompareAll(const std::string& folder, double tolerance, const std::string& exact) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (fs::exists(entry.path() / "expected.json")) names.insert(entry.path().filename());
  }
  Differences worst;
  int equal = 0;
  int refused = 0;
  int bad = 0;
  for (const std::string& name : names) {
    const Verdict verdict =
        Compare(absl::StrCat(folder, "/", name), absl::StrCat(exact, "/", name), tolerance, worst);
    std::cout << name << (verdict.good ? verdict.refused ? " refused: " : " equal: " : " WRONG: ")
              << verdict.text << "\n";
    ++(verdict.good ? verdict.refused ? refused : equal : bad);
  }
  std::cout << equal << " equal within " << tolerance << ", " << refused << " refused by name, " << bad
            << " wrong; worst " << json(worst).dump() << "\n";
  return bad == 0 && equal > 0 ? 0 : 1;
}

}  // namespace
}  // namespace penstock::worker

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: compare_families FOLDER TOLERANCE EXACT\n";
    return 2;
  }
  return penstock::worker::CompareAll(argv[1], std::atof(argv[2]), argv[3]);
}
