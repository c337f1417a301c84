// The optimizer's share of an iteration: the norm of the gradients and the step, beside LibTorch's fused
// kernel and beside one operator after the other, on the parameters of a GPT. One after the other in turns,
// one thread, by the thread's clock, so that other programs count little; medians of the turns and of the
// ratios within a turn, as one JSON object a line.
//
//   build/release/bin/optimizer_bench [TURNS]

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/bench/median.h"
#include "worker/optimizer/adamw.h"

namespace penstock::worker {
namespace {

using bench::Median;

constexpr int kTurns = 9;
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.95;
constexpr double kEpsilon = 1e-8;
constexpr double kRate = 1e-4;
constexpr double kDecay = 0.1;

double ThreadMilliseconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

double Milliseconds(const std::function<void()>& body) {
  const double start = ThreadMilliseconds();
  body();
  return ThreadMilliseconds() - start;
}

FlatParameters Gpt(int64_t hidden) {
  ModelConfig model = {.layers = 4,
                       .hidden = hidden,
                       .heads = 8,
                       .attention_inner = hidden,
                       .ffn = 4 * hidden,
                       .vocab = 8192,
                       .max_sequence_length = 1024};
  FlatParameters flat =
      MakeFlatParameters(StageParameterSpecs(model, {.layers = 4, .first = true, .last = true}),
                         /*seed=*/1, at::kFloat, at::kCPU);
  flat.gradients.fill_(0.01);
  return flat;
}

// Tensors of their own, as those of other frameworks.
struct Separate {
  explicit Separate(const FlatParameters& flat) {
    for (const NamedParameter& parameter : flat.parameters) {
      values.push_back(parameter.value.clone());
      gradients.push_back(parameter.gradient.clone());
      first.push_back(at::zeros_like(parameter.value));
      second.push_back(at::zeros_like(parameter.value));
    }
  }

  std::vector<at::Tensor> values;
  std::vector<at::Tensor> gradients;
  std::vector<at::Tensor> first;
  std::vector<at::Tensor> second;
};

void FusedByLibTorch(Separate& tensors) {
  const std::vector<at::Tensor> steps(tensors.values.size(), at::ones({}));
  at::_fused_adamw_(tensors.values, tensors.gradients, tensors.first, tensors.second, {}, steps, kRate,
                    kBeta1, kBeta2, kDecay, kEpsilon, /*amsgrad=*/false, /*maximize=*/false);
}

void OneOperatorAfterTheOther(Separate& tensors) {
  for (size_t i = 0; i < tensors.values.size(); ++i) {
    const at::Tensor& gradient = tensors.gradients[i];
    tensors.first[i].mul_(kBeta1).add_(gradient, 1 - kBeta1);
    tensors.second[i].mul_(kBeta2).addcmul_(gradient, gradient, 1 - kBeta2);
    tensors.values[i].mul_(1 - kRate * kDecay);
    const at::Tensor deviation = (tensors.second[i] / (1 - kBeta2)).sqrt_().add_(kEpsilon);
    tensors.values[i].addcdiv_(tensors.first[i], deviation, -kRate / (1 - kBeta1));
  }
}

double NormByLibTorch(const Separate& tensors) {
  double sum = 0;
  for (const at::Tensor& gradient : tensors.gradients) {
    sum += at::linalg_vector_norm(gradient, 2, std::nullopt, false, at::kDouble).square().item<double>();
  }
  return sum;
}

void Measure(int64_t hidden, int turns) {
  const FlatParameters flat = Gpt(hidden);
  Separate tensors(flat);
  const TrainingConfig config = {.learning_rate = {.peak = kRate}, .weight_decay = kDecay};
  const auto optimizer = *AdamW::Create(config, {&flat});
  std::vector<double> step;
  std::vector<double> fused;
  std::vector<double> operators;
  std::vector<double> norm;
  std::vector<double> torch_norm;
  std::vector<double> ratio;
  for (int turn = -1; turn < turns; ++turn) {
    const double own = Milliseconds([&] { optimizer->Step(0, 1).IgnoreError(); });
    const double theirs = Milliseconds([&] { FusedByLibTorch(tensors); });
    const double single = Milliseconds([&] { OneOperatorAfterTheOther(tensors); });
    const double own_norm = Milliseconds([&] { optimizer->SumsOfSquares().status().IgnoreError(); });
    const double their_norm = Milliseconds([&] { NormByLibTorch(tensors); });
    if (turn < 0) continue;  // memory is fresh
    step.push_back(own);
    fused.push_back(theirs);
    operators.push_back(single);
    norm.push_back(own_norm);
    torch_norm.push_back(their_norm);
    ratio.push_back(theirs / own);
  }
  const nlohmann::ordered_json row = {{"hidden", hidden},
                                      {"parameters", flat.values.numel()},
                                      {"step_ms", Median(step)},
                                      {"libtorch_fused_ms", Median(fused)},
                                      {"operators_ms", Median(operators)},
                                      {"norm_ms", Median(norm)},
                                      {"libtorch_norm_ms", Median(torch_norm)},
                                      {"speed_of_libtorch_fused", Median(ratio)}};
  std::printf("%s\n", row.dump().c_str());
}

}  // namespace
}  // namespace penstock::worker

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const int turns = argc > 1 ? std::max(1, std::atoi(argv[1])) : penstock::worker::kTurns;
  for (const int64_t hidden : {128, 512, 1024}) penstock::worker::Measure(hidden, turns);
  return 0;
}
