#include "planner/cli/model/export_model.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/files/files.h"
#include "common/files/scratch_folder.h"
#include "common/safetensors/writer.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/checkpoint_names.h"
#include "planner/cli/model/export_adapters.h"
#include "planner/cli/model/exported_config.h"
#include "planner/cli/model/kept_files.h"
#include "planner/cli/model/merge_adapters.h"
#include "planner/cli/model/model_folder.h"
#include "planner/cli/model/tensor_copy.h"
#include "planner/cli/model/tensor_set.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

// A tensor to write: rows of one of Penstock's.
struct ExportedPiece {
  const TensorNames* names = nullptr;
  const TensorPiece* piece = nullptr;
  int64_t first_row = 0;
  FoundTensor from;

  TensorToWrite target() const { return {piece->name, from.tensor->type, ShapeOfPiece(*names, *piece)}; }
  // It is the first, or all, of that tensor.
  bool begins() const { return piece->first_row == 0; }
};

using Pieces = std::vector<ExportedPiece>;

absl::StatusOr<Pieces> FindPieces(const std::vector<TensorNames>& all, const TensorSet& source) {
  Pieces pieces;
  for (const TensorNames& names : all) {
    const absl::StatusOr<FoundTensor> found = source.Find(names.name, names.shape());
    if (absl::IsNotFound(found.status())) {
      return absl::InvalidArgumentError(absl::StrCat("'", source.folder(), "' has no tensor '", names.name,
                                                     "' of the shape that model.json asks for"));
    }
    PENSTOCK_RETURN_IF_ERROR(found.status());
    int64_t row = 0;
    for (const TensorPiece& piece : names.pieces) {
      pieces.push_back({&names, &piece, row, *found});
      row += piece.rows;
    }
  }
  return pieces;
}

// In order, as many as fit into a file, at least one.
std::vector<Pieces> DivideIntoFiles(const Pieces& pieces, uint64_t most_bytes) {
  std::vector<Pieces> files(1);
  uint64_t bytes = 0;
  for (const ExportedPiece& piece : pieces) {
    const uint64_t own = piece.begins() ? piece.target().bytes() : 0;
    if (piece.begins() && !files.back().empty() && bytes + own > most_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(piece);
    bytes += own;
  }
  return files;
}

// As save_pretrained names them.
std::string FileName(size_t file, size_t files) {
  if (files == 1) return "model.safetensors";
  return absl::StrFormat("model-%05d-of-%05d.safetensors", file + 1, files);
}

absl::Status WriteFile(const std::string& path, const Pieces& pieces) {
  std::vector<TensorToWrite> targets;
  for (const ExportedPiece& piece : pieces)
    if (piece.begins()) targets.push_back(piece.target());
  PENSTOCK_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, targets));
  for (const ExportedPiece& piece : pieces) {
    PENSTOCK_RETURN_IF_ERROR(AppendPiece(piece.from, *piece.names, *piece.piece, piece.first_row, writer));
  }
  return writer.Finish();
}

absl::Status WriteFiles(const std::string& folder, const std::vector<Pieces>& files, ExportedModel& result) {
  nlohmann::ordered_json weights;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = FileName(i, files.size());
    PENSTOCK_RETURN_IF_ERROR(WriteFile(absl::StrCat(folder, "/", name), files[i]));
    for (const ExportedPiece& piece : files[i]) {
      if (!piece.begins()) continue;
      weights[piece.piece->name] = name;
      result.bytes += piece.target().bytes();
      ++result.tensors;
    }
  }
  result.files = files.size();
  if (files.size() == 1) return absl::OkStatus();
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", result.bytes}}},
                                        {"weight_map", weights}};
  return WriteFileAtomically(absl::StrCat(folder, "/model.safetensors.index.json"), index.dump(2) + "\n");
}

absl::Status PrepareExport(const std::string& folder) {
  std::error_code error;
  for (const char* file : {"config.json", "model.safetensors", "model.safetensors.index.json"}) {
    if (fs::exists(fs::path(folder) / file, error)) {
      return absl::AlreadyExistsError(
          absl::StrCat("'", folder, "' has a ", file, ": name another folder, or remove it"));
    }
  }
  fs::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("making folder '", folder, "': ", error.message()));
}

// The whole model of `folder`, whose parameters are in its checkpoint.
absl::StatusOr<ExportedModel> ExportWhole(const ExportOptions& options, const ModelFolder& folder) {
  PENSTOCK_ASSIGN_OR_RETURN(const ExportedConfig exported, ConfigToExport(options.from, folder.model));
  PENSTOCK_ASSIGN_OR_RETURN(const TensorSet source, TensorSet::OpenRanks(folder.checkpoint));
  const std::vector<TensorNames> names = CheckpointNames(folder.model, exported.family);
  PENSTOCK_ASSIGN_OR_RETURN(const Pieces pieces, FindPieces(names, source));
  PENSTOCK_RETURN_IF_ERROR(PrepareExport(options.to));
  ExportedModel result;
  result.next_iteration = folder.next_iteration;
  result.config_changes = exported.changes;
  PENSTOCK_RETURN_IF_ERROR(WriteFiles(options.to, DivideIntoFiles(pieces, options.most_file_bytes), result));
  PENSTOCK_ASSIGN_OR_RETURN(result.kept_files, ReturnKeptFiles(options.from, options.to));
  // Last, because it is what a model is recognised by.
  PENSTOCK_RETURN_IF_ERROR(
      WriteFileAtomically(absl::StrCat(options.to, "/config.json"), exported.config.dump(2) + "\n"));
  return result;
}

absl::StatusOr<ExportedModel> ExportMerged(const ExportOptions& options, ModelFolder folder) {
  PENSTOCK_RETURN_IF_ERROR(PrepareExport(options.to));
  const ScratchFolder merged(absl::StrCat(options.to, "/.merged"));
  PENSTOCK_RETURN_IF_ERROR(MergeAdapters(folder, merged.path()));
  folder.checkpoint = merged.path();
  folder.model.clear_adapters();
  return ExportWhole(options, folder);
}

absl::StatusOr<ExportedModel> ExportAdaptersOf(const ExportOptions& options, const ModelFolder& folder) {
  v1::ModelSpec base = folder.model;
  base.clear_adapters();
  PENSTOCK_ASSIGN_OR_RETURN(const ExportedConfig exported, ConfigToExport(options.from, base));
  PENSTOCK_ASSIGN_OR_RETURN(ExportedModel result, ExportAdapters(folder, exported.family, options.to));
  result.adapters = true;
  return result;
}

}  // namespace

absl::StatusOr<ExportedModel> ExportModel(const ExportOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const ModelFolder folder, OpenModelFolder(options.from));
  if (folder.model.has_adapters())
    return options.merge ? ExportMerged(options, folder) : ExportAdaptersOf(options, folder);
  if (!options.merge) return ExportWhole(options, folder);
  return absl::InvalidArgumentError(
      absl::StrCat("--merge: '", options.from, "' has no adapters; leave it out"));
}

}  // namespace penstock::cli
