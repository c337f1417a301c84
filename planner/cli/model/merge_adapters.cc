#include "planner/cli/model/merge_adapters.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/safetensors/writer.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/adapter_modules.h"
#include "planner/cli/model/checkpoint_names.h"
#include "planner/cli/model/float_elements.h"
#include "planner/cli/model/hugging_face_config.h"
#include "planner/cli/model/tensor_set.h"

namespace penstock::cli {
namespace {

struct AdapterValues {
  OwnAdapter adapter;
  std::vector<double> a;
  std::vector<double> b;
};

absl::StatusOr<FoundTensor> FindIn(const TensorSet& source, const std::string& name,
                                   const std::vector<int64_t>& shape) {
  absl::StatusOr<FoundTensor> found = source.Find(name, shape);
  if (!absl::IsNotFound(found.status())) return found;
  return absl::InvalidArgumentError(absl::StrCat("'", source.folder(), "' has no tensor '", name,
                                                 "' of the shape that model.json asks for"));
}

absl::StatusOr<std::vector<double>> ReadValues(const TensorSet& source, const std::string& name,
                                               const std::vector<int64_t>& shape) {
  PENSTOCK_ASSIGN_OR_RETURN(const FoundTensor found, FindIn(source, name, shape));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string bytes, ReadBytes(found));
  return ToDoubles(bytes, found.tensor->type);
}

// Adds scale * B A to the rows of the weight that the adapter is at.
void AddProduct(const AdapterValues& values, int64_t rank, double scale, std::vector<double>& weight) {
  const int64_t columns = values.adapter.inputs;
  for (int64_t row = 0; row < values.adapter.rows; ++row) {
    double* const target = &weight[static_cast<size_t>((values.adapter.first_row + row) * columns)];
    for (int64_t i = 0; i < rank; ++i) {
      const double factor = scale * values.b[static_cast<size_t>(row * rank + i)];
      const double* const source = &values.a[static_cast<size_t>(i * columns)];
      for (int64_t column = 0; column < columns; ++column) target[column] += factor * source[column];
    }
  }
}

class Merge {
 public:
  Merge(const v1::ModelSpec& model, const TensorSet& adapters, const TensorSet& base)
      : model_(model), adapters_(adapters), base_(base) {
    for (const OwnAdapter& adapter : OwnAdapters(model)) by_weight_[adapter.weight].push_back(adapter);
  }

  absl::Status Write(const std::string& path) const {
    std::vector<TensorToWrite> targets;
    std::vector<FoundTensor> found;
    for (const TensorNames& names : CheckpointNames(model_, FamilyOf(model_))) {
      PENSTOCK_ASSIGN_OR_RETURN(found.emplace_back(), FindIn(base_, names.name, names.shape()));
      targets.push_back({names.name, found.back().tensor->type, names.shape()});
    }
    PENSTOCK_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, targets));
    for (size_t i = 0; i < found.size(); ++i) {
      PENSTOCK_ASSIGN_OR_RETURN(const std::string bytes, Merged(targets[i], found[i]));
      PENSTOCK_RETURN_IF_ERROR(writer.Append(bytes));
    }
    return writer.Finish();
  }

 private:
  absl::StatusOr<std::string> Merged(const TensorToWrite& tensor, const FoundTensor& found) const {
    PENSTOCK_ASSIGN_OR_RETURN(std::string bytes, ReadBytes(found));
    const auto adapted = by_weight_.find(tensor.name);
    if (adapted == by_weight_.end()) return bytes;
    const int64_t rank = model_.adapters().rank();
    std::vector<double> weight = ToDoubles(bytes, tensor.type);
    for (const OwnAdapter& adapter : adapted->second) {
      AdapterValues values = {.adapter = adapter, .a = {}, .b = {}};
      PENSTOCK_ASSIGN_OR_RETURN(values.a, ReadValues(adapters_, adapter.a(), {rank, adapter.inputs}));
      PENSTOCK_ASSIGN_OR_RETURN(values.b, ReadValues(adapters_, adapter.b(), {adapter.rows, rank}));
      AddProduct(values, rank, ScaleOf(model_.adapters()), weight);
    }
    return FromDoubles(weight, tensor.type);
  }

  const v1::ModelSpec& model_;
  const TensorSet& adapters_;
  const TensorSet& base_;
  std::map<std::string, std::vector<OwnAdapter>> by_weight_;
};

}  // namespace

double ScaleOf(const v1::Adapters& adapters) {
  const double rank = adapters.rank();
  const double alpha = adapters.alpha() != 0 ? adapters.alpha() : rank;
  return alpha / (adapters.rank_stabilised() ? std::sqrt(rank) : rank);
}

absl::Status MergeAdapters(const ModelFolder& folder, const std::string& to) {
  PENSTOCK_ASSIGN_OR_RETURN(const TensorSet adapters, TensorSet::OpenRanks(folder.checkpoint));
  PENSTOCK_ASSIGN_OR_RETURN(const TensorSet base, TensorSet::OpenRanks(folder.base));
  std::error_code error;
  std::filesystem::create_directories(to, error);
  if (error) return absl::PermissionDeniedError(absl::StrCat("making folder '", to, "': ", error.message()));
  return Merge(folder.model, adapters, base).Write(PartPath(to, 0));
}

}  // namespace penstock::cli
