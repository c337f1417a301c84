// Several token datasets as one: the samples of the first, behind them those of the second, and so on.
//
//   auto data = OpenJoined({"data/flan", "data/code"});
//   (*data)->Tokens(flan_samples + 7);                  // sample 7 of data/code
//
// So ids tell the samples of a mixture (penstock up --mix) apart, for whoever has the same paths in the same
// order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dataset/indexed_dataset.h"

namespace penstock {

// `parts`: at least one. Each is opened as it is (IndexedDataset::Open); nothing is copied.
std::unique_ptr<IndexedDataset> Join(std::vector<std::unique_ptr<IndexedDataset>> parts);

// `prefixes`: at least one. Possible errors: those of IndexedDataset::Open.
absl::StatusOr<std::unique_ptr<IndexedDataset>> OpenJoined(const std::vector<std::string>& prefixes);

}  // namespace penstock
