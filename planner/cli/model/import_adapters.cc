#include "planner/cli/model/import_adapters.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/safetensors/reader.h"
#include "common/safetensors/writer.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/adapter_modules.h"
#include "planner/cli/model/base_folder.h"
#include "planner/cli/model/exported_config.h"
#include "planner/cli/model/float_elements.h"
#include "planner/cli/model/kept_files.h"
#include "planner/cli/model/linear_layer_names.h"
#include "planner/cli/model/model_folder.h"
#include "planner/cli/model/peft_config.h"
#include "planner/core/contract/adapters.h"

namespace penstock::cli {
namespace {

constexpr double kSameScale = 1e-9;

// A module of theirs and its matrices, as they are stored.
struct PeftModule {
  AdapterModule module;
  int64_t rank = 0;
  double scale = 0;
  std::string type;
  std::string a;
  std::string b;
  // Each of our adapters has its own rows of A and columns of B: of an export of Penstock's.
  bool divided = false;

  int64_t own_rank() const { return divided ? rank / static_cast<int64_t>(module.parts.size()) : rank; }
};

class PeftReader {
 public:
  PeftReader(PeftConfig config, SafetensorsReader file)
      : config_(std::move(config)), file_(std::move(file)) {}

  static absl::StatusOr<PeftReader> Open(const std::string& folder) {
    PENSTOCK_ASSIGN_OR_RETURN(PeftConfig config, ReadPeftConfig(folder));
    const std::string path = absl::StrCat(folder, "/", kPeftTensors);
    absl::StatusOr<SafetensorsReader> file = SafetensorsReader::Open(path);
    if (absl::IsNotFound(file.status())) {
      return absl::NotFoundError(
          absl::StrCat("'", path, "' is not there; save the adapters as safetensors (PEFT's default)"));
    }
    PENSTOCK_RETURN_IF_ERROR(file.status());
    return PeftReader(std::move(config), *std::move(file));
  }

  // Of all modules that could have some, those that have.
  absl::StatusOr<std::vector<PeftModule>> Read(const std::vector<AdapterModule>& modules) {
    std::vector<PeftModule> found;
    for (const AdapterModule& module : modules) {
      if (!file_.tensors().contains(NameOf(module, "A"))) continue;
      PENSTOCK_ASSIGN_OR_RETURN(found.emplace_back(), ReadModule(module));
    }
    for (const auto& [name, tensor] : file_.tensors()) {
      if (used_.contains(name)) continue;
      return Refuse(absl::StrCat("tensor '", name, "' is of no linear layer of the model"));
    }
    if (found.empty()) return Refuse("there are no adapters");
    return found;
  }

  bool rank_stabilised() const { return config_.rank_stabilised; }
  absl::Status Refuse(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", file_.path(), "': ", what, "; merge it with PEFT (merge_and_unload), and import the model"));
  }

 private:
  static std::string NameOf(const AdapterModule& module, const char* matrix) {
    return absl::StrCat(kPeftPrefix, module.name, ".lora_", matrix, ".weight");
  }

  absl::StatusOr<PeftModule> ReadModule(const AdapterModule& module) {
    PeftModule read;
    read.module = module;
    PENSTOCK_ASSIGN_OR_RETURN(read.a, ReadMatrix(NameOf(module, "A"), module.inputs, /*rows=*/false, read));
    PENSTOCK_ASSIGN_OR_RETURN(read.b, ReadMatrix(NameOf(module, "B"), module.outputs, /*rows=*/true, read));
    if (read.rank != static_cast<int64_t>(config_.RankOf(module.name)))
      return Refuse(absl::StrCat("'", NameOf(module, "A"), "' has rank ", read.rank, ", by ", kPeftConfig,
                                 " ", config_.RankOf(module.name)));
    const auto rank = static_cast<double>(read.rank);
    read.scale = config_.AlphaOf(module.name) / (config_.rank_stabilised ? std::sqrt(rank) : rank);
    read.divided = IsDivided(read);
    return read;
  }

  // `width`: of the dimension that is not the rank; it is the number of rows, or of columns.
  absl::StatusOr<std::string> ReadMatrix(const std::string& name, int64_t width, bool rows,
                                         PeftModule& module) {
    const auto found = file_.tensors().find(name);
    if (found == file_.tensors().end()) return Refuse(absl::StrCat("there is no tensor '", name, "'"));
    used_.insert(name);
    const StoredTensor& tensor = found->second;
    const size_t own = rows ? 0 : 1;
    if (tensor.shape.size() != 2 || tensor.shape[own] != width ||
        (module.rank > 0 && tensor.shape[1 - own] != module.rank))
      return Refuse(absl::StrCat("tensor '", name, "' is of another model"));
    if (!module.type.empty() && tensor.type != module.type)
      return Refuse(absl::StrCat("tensor '", name, "' is ", tensor.type, ", the other one ", module.type));
    module.rank = tensor.shape[1 - own];
    module.type = tensor.type;
    return ReadBytes(FoundTensor{.file = &file_, .tensor = &tensor});
  }

  // Whether B is 0 but for each part's rows in its own columns, and not all of it.
  static bool IsDivided(const PeftModule& read) {
    const auto parts = static_cast<int64_t>(read.module.parts.size());
    if (parts == 1 || read.rank % parts != 0) return false;
    const std::vector<double> values = ToDoubles(read.b, read.type);
    const int64_t own = read.rank / parts;
    bool any = false;
    for (int64_t i = 0; i < static_cast<int64_t>(values.size()); ++i) {
      if (values[static_cast<size_t>(i)] == 0) continue;
      any = true;
      const int64_t row = i / read.rank;
      const AdapterModule::Part& part = read.module.parts[static_cast<size_t>(i % read.rank / own)];
      if (row < part.first_output || row >= part.first_output + part.adapter.rows) return false;
    }
    return any;
  }

  PeftConfig config_;
  SafetensorsReader file_;
  std::set<std::string> used_;
};

// Rows of B of one of our adapters, and the columns that are its own.
std::string OwnB(const PeftModule& module, size_t part) {
  const uint64_t element = ElementBytesOf(module.type);
  const AdapterModule::Part& of = module.module.parts[part];
  const int64_t rank = module.own_rank();
  const int64_t column = module.divided ? static_cast<int64_t>(part) * rank : 0;
  std::string bytes;
  for (int64_t row = of.first_output; row < of.first_output + of.adapter.rows; ++row) {
    bytes += module.b.substr(static_cast<uint64_t>(row * module.rank + column) * element,
                             static_cast<uint64_t>(rank) * element);
  }
  return bytes;
}

std::string OwnA(const PeftModule& module, size_t part) {
  const uint64_t bytes =
      static_cast<uint64_t>(module.own_rank() * module.module.inputs) * ElementBytesOf(module.type);
  return module.a.substr(module.divided ? part * bytes : 0, bytes);
}

// What all modules have in common.
absl::StatusOr<v1::Adapters> CommonAdapters(const PeftReader& reader,
                                            const std::vector<PeftModule>& modules) {
  v1::Adapters adapters;
  const PeftModule& first = modules.front();
  std::set<v1::LinearLayer> targets;
  for (const PeftModule& module : modules) {
    for (const AdapterModule::Part& part : module.module.parts) targets.insert(part.adapter.layer);
    if (module.own_rank() != first.own_rank())
      return reader.Refuse(absl::StrCat("'", module.module.name, "' has rank ", module.own_rank(), ", '",
                                        first.module.name, "' ", first.own_rank()));
    if (std::fabs(module.scale - first.scale) > kSameScale * first.scale)
      return reader.Refuse(absl::StrCat("'", module.module.name, "' has the scale ", module.scale, ", '",
                                        first.module.name, "' ", first.scale));
  }
  const auto rank = static_cast<double>(first.own_rank());
  adapters.set_rank(static_cast<uint32_t>(first.own_rank()));
  adapters.set_rank_stabilised(reader.rank_stabilised());
  adapters.set_alpha(first.scale * (reader.rank_stabilised() ? std::sqrt(rank) : rank));
  for (const v1::LinearLayer layer : targets) adapters.add_targets(layer);
  return adapters;
}

// Each layer has its adapters.
absl::Status CheckAllLayers(const PeftReader& reader, const std::vector<PeftModule>& found,
                            const std::vector<AdapterModule>& expected) {
  std::set<std::string> names;
  for (const PeftModule& module : found) names.insert(module.module.name);
  for (const AdapterModule& module : expected) {
    if (!names.contains(module.name))
      return reader.Refuse(absl::StrCat("'", module.name, "' has no adapter, as others like it have"));
  }
  return absl::OkStatus();
}

absl::Status WriteAdapters(const std::vector<PeftModule>& modules, const std::string& path,
                           ImportedAdapters& result) {
  std::vector<TensorToWrite> targets;
  std::vector<std::string> data;
  for (const PeftModule& module : modules) {
    for (size_t part = 0; part < module.module.parts.size(); ++part) {
      const OwnAdapter& adapter = module.module.parts[part].adapter;
      targets.push_back({adapter.a(), module.type, {module.own_rank(), adapter.inputs}});
      data.push_back(OwnA(module, part));
      targets.push_back({adapter.b(), module.type, {adapter.rows, module.own_rank()}});
      data.push_back(OwnB(module, part));
    }
  }
  PENSTOCK_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, targets));
  for (const std::string& bytes : data) {
    PENSTOCK_RETURN_IF_ERROR(writer.Append(bytes));
    result.bytes += bytes.size();
  }
  result.tensors = targets.size();
  return writer.Finish();
}

v1::ModelSpec WithAllAdapters(v1::ModelSpec model) {
  model.mutable_adapters()->set_rank(1);
  for (const v1::LinearLayer layer : AllLinearLayers(model)) model.mutable_adapters()->add_targets(layer);
  return model;
}

}  // namespace

bool HasPeftAdapters(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(folder) / kPeftConfig, ignored);
}

absl::StatusOr<ImportedAdapters> ImportAdapters(const std::string& from, const std::string& base,
                                                const std::string& to) {
  PENSTOCK_ASSIGN_OR_RETURN(ModelFolder folder, OpenModelFolder(base));
  if (folder.model.has_adapters())
    return absl::InvalidArgumentError(absl::StrCat(
        "--base: '", base, "' has adapters already; merge them first (penstock model export --merge)"));
  if (folder.model.experts() > 0)
    return absl::InvalidArgumentError(
        absl::StrCat("--base: '", base, "' has experts, and adapters are for models without"));
  PENSTOCK_ASSIGN_OR_RETURN(const ExportedConfig config, ConfigToExport(base, folder.model));
  PENSTOCK_ASSIGN_OR_RETURN(PeftReader reader, PeftReader::Open(from));
  const std::vector<AdapterModule> possible = AdapterModules(WithAllAdapters(folder.model), config.family);
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<PeftModule> modules, reader.Read(possible));
  ImportedAdapters result;
  PENSTOCK_ASSIGN_OR_RETURN(result.adapters, CommonAdapters(reader, modules));
  *folder.model.mutable_adapters() = result.adapters;
  PENSTOCK_RETURN_IF_ERROR(core::CheckAdapters(folder.model));
  PENSTOCK_RETURN_IF_ERROR(CheckAllLayers(reader, modules, AdapterModules(folder.model, config.family)));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string target, PrepareImport(to));
  PENSTOCK_RETURN_IF_ERROR(WriteAdapters(modules, target, result));
  PENSTOCK_RETURN_IF_ERROR(KeepBase(folder.checkpoint, to));
  PENSTOCK_RETURN_IF_ERROR(KeepFilesOf(base, to));
  PENSTOCK_RETURN_IF_ERROR(WriteModel(to, folder.model));
  PENSTOCK_RETURN_IF_ERROR(CompleteImport(to));
  return result;
}

}  // namespace penstock::cli
