// How command lines name several datasets: by paths, with names for what they teach (tasks), and in a mixture
// with weights.
//
//   ParseDatasets("data/flan,code:data/code/train")           // tasks flan and code
//   ParseMixture("data/flan=0.7,code:data/code/train=0.3")    // the same, with weights
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

struct NamedDataset {
  // What stands before the colon; without one the last part of the path.
  std::string name;
  // Without .idx and .bin.
  std::string path;
};

struct MixtureTask {
  NamedDataset dataset;
  // Its part of the samples, beside the other weights: they need not add up to 1.
  double weight = 0;
};

// [NAME:]PATH, separated by commas. Possible errors: INVALID_ARGUMENT (a path is missing; of several, a name
// is not made of letters, digits and "_-.", or is there twice; says what to do).
absl::StatusOr<std::vector<NamedDataset>> ParseDatasets(absl::string_view text);

// [NAME:]PATH=WEIGHT, separated by commas. Possible errors: besides, INVALID_ARGUMENT (a weight that is
// missing, no number, below 0 or above 1e12; none above 0).
absl::StatusOr<std::vector<MixtureTask>> ParseMixture(absl::string_view text);

// In their order.
std::vector<std::string> PathsOf(const std::vector<MixtureTask>& tasks);

// Where they are, whoever reads it in whatever folder.
std::vector<NamedDataset> WithAbsolutePaths(std::vector<NamedDataset> datasets);
std::vector<MixtureTask> WithAbsolutePaths(std::vector<MixtureTask> tasks);

// What ParseDatasets and ParseMixture read as the same; weights keep every bit.
std::string ToText(const std::vector<NamedDataset>& datasets);
std::string ToText(const std::vector<MixtureTask>& tasks);

}  // namespace penstock
