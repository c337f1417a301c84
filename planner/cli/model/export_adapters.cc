#include "planner/cli/model/export_adapters.h"

#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/safetensors/writer.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/adapter_modules.h"
#include "planner/cli/model/float_elements.h"
#include "planner/cli/model/peft_config.h"
#include "planner/cli/model/tensor_set.h"

namespace penstock::cli {
namespace {

absl::StatusOr<FoundTensor> Find(const TensorSet& source, const std::string& name,
                                 const std::vector<int64_t>& shape) {
  absl::StatusOr<FoundTensor> found = source.Find(name, shape);
  if (!absl::IsNotFound(found.status())) return found;
  return absl::InvalidArgumentError(absl::StrCat("'", source.folder(), "' has no tensor '", name,
                                                 "' of the shape that model.json asks for"));
}

// The two matrices of a module, of which each part has its own rows of A and columns of B.
struct ModuleMatrices {
  std::string type;
  std::string a;
  std::string b;
};

class ModuleReader {
 public:
  ModuleReader(const TensorSet& source, int64_t rank) : source_(source), rank_(rank) {}

  absl::StatusOr<ModuleMatrices> Read(const AdapterModule& module) const {
    ModuleMatrices matrices;
    const int64_t columns = rank_ * static_cast<int64_t>(module.parts.size());
    int64_t column = 0;
    for (const AdapterModule::Part& part : module.parts) {
      PENSTOCK_ASSIGN_OR_RETURN(const FoundTensor a,
                                Find(source_, part.adapter.a(), {rank_, part.adapter.inputs}));
      PENSTOCK_ASSIGN_OR_RETURN(const FoundTensor b,
                                Find(source_, part.adapter.b(), {part.adapter.rows, rank_}));
      PENSTOCK_ASSIGN_OR_RETURN(const std::string own_a, ReadBytes(a));
      PENSTOCK_ASSIGN_OR_RETURN(const std::string own_b, ReadBytes(b));
      matrices.type = a.tensor->type;
      matrices.a += own_a;
      const uint64_t element = ElementBytesOf(matrices.type);
      if (matrices.b.empty())
        matrices.b.assign(static_cast<uint64_t>(module.outputs * columns) * element, '\0');
      const uint64_t width = static_cast<uint64_t>(rank_) * element;
      for (int64_t row = 0; row < part.adapter.rows; ++row) {
        const auto target = static_cast<uint64_t>((part.first_output + row) * columns + column) * element;
        std::memcpy(&matrices.b[target], &own_b[static_cast<uint64_t>(row) * width], width);
      }
      column += rank_;
    }
    return matrices;
  }

 private:
  const TensorSet& source_;
  const int64_t rank_;
};

absl::Status MakeFolderForAdapters(const std::string& folder) {
  std::error_code error;
  for (const char* file : {kPeftConfig, kPeftTensors}) {
    if (std::filesystem::exists(std::filesystem::path(folder) / file, error)) {
      return absl::AlreadyExistsError(
          absl::StrCat("'", folder, "' has a ", file, ": name another folder, or remove it"));
    }
  }
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("making folder '", folder, "': ", error.message()));
}

}  // namespace

absl::StatusOr<ExportedModel> ExportAdapters(const ModelFolder& folder, const std::string& family,
                                             const std::string& to) {
  PENSTOCK_ASSIGN_OR_RETURN(const TensorSet source, TensorSet::OpenRanks(folder.checkpoint));
  const std::vector<AdapterModule> modules = AdapterModules(folder.model, family);
  const auto rank = static_cast<int64_t>(folder.model.adapters().rank());
  const ModuleReader reader(source, rank);
  std::vector<TensorToWrite> targets;
  std::vector<std::string> data;
  for (const AdapterModule& module : modules) {
    PENSTOCK_ASSIGN_OR_RETURN(ModuleMatrices matrices, reader.Read(module));
    const int64_t columns = rank * static_cast<int64_t>(module.parts.size());
    const std::string name = absl::StrCat(kPeftPrefix, module.name);
    targets.push_back({name + ".lora_A.weight", matrices.type, {columns, module.inputs}});
    targets.push_back({name + ".lora_B.weight", matrices.type, {module.outputs, columns}});
    data.push_back(std::move(matrices.a));
    data.push_back(std::move(matrices.b));
  }
  PENSTOCK_RETURN_IF_ERROR(MakeFolderForAdapters(to));
  PENSTOCK_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                            SafetensorsWriter::Create(absl::StrCat(to, "/", kPeftTensors), targets));
  ExportedModel result;
  result.tensors = targets.size();
  result.files = 1;
  result.next_iteration = folder.next_iteration;
  for (const std::string& bytes : data) {
    PENSTOCK_RETURN_IF_ERROR(writer.Append(bytes));
    result.bytes += bytes.size();
  }
  PENSTOCK_RETURN_IF_ERROR(writer.Finish());
  // Last, because it is what adapters are recognised by.
  const nlohmann::ordered_json config = PeftConfigOf(folder.model, family, modules);
  PENSTOCK_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(to, "/", kPeftConfig), config.dump(2) + "\n"));
  return result;
}

}  // namespace penstock::cli
