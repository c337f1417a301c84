#include "planner/cli/model/import_model.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/files/files.h"
#include "common/safetensors/writer.h"
#include "common/status/status_macros.h"
#include "planner/cli/model/checkpoint_names.h"
#include "planner/cli/model/model_folder.h"
#include "planner/cli/model/tensor_copy.h"
#include "planner/cli/model/tensor_set.h"

namespace penstock::cli {
namespace {

// A position that has no end, of a model whose configuration names none.
constexpr uint32_t kLongestOfRelativePositions = 512;

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

constexpr absl::string_view kTokenTable = "embedding.token.weight";
constexpr uint64_t kComparedBytes = 1 << 20;

// Second names of the token table, where it is tied.
bool IsTokenTable(const std::string& name, const v1::ModelSpec& model) {
  if (name == "encoder.embed_tokens.weight" || name == "decoder.embed_tokens.weight") return true;
  return name == "lm_head.weight" && model.tied_head();
}

// Possible errors: those of FoundTensor::Read.
absl::StatusOr<bool> AreEqual(const FoundTensor& one, const FoundTensor& other) {
  if (one.tensor->type != other.tensor->type || one.tensor->shape != other.tensor->shape) return false;
  std::string bytes, others;
  for (uint64_t offset = 0; offset < one.tensor->bytes(); offset += kComparedBytes) {
    bytes.resize(std::min(kComparedBytes, one.tensor->bytes() - offset));
    others.resize(bytes.size());
    PENSTOCK_RETURN_IF_ERROR(one.Read(offset, absl::MakeSpan(bytes.data(), bytes.size())));
    PENSTOCK_RETURN_IF_ERROR(other.Read(offset, absl::MakeSpan(others.data(), others.size())));
    if (bytes != others) return false;
  }
  return true;
}

// Buffers of models that were saved by older versions.
bool IsBuffer(const std::string& name) {
  for (const char* suffix : {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"}) {
    if (absl::EndsWith(name, suffix)) return true;
  }
  return false;
}

class Import {
 public:
  Import(const v1::ModelSpec& model, const std::string& family, const TensorSet& source)
      : model_(model), source_(source), names_(CheckpointNames(model, family)) {}

  // Finds every tensor, before anything is written.
  absl::Status Plan();
  absl::StatusOr<uint64_t> Write(const std::string& path) const;
  uint64_t tensors() const { return names_.size(); }

 private:
  absl::StatusOr<FoundTensor> Find(const TensorNames& names, const TensorPiece& piece);
  absl::Status PlanTensor(const TensorNames& names);
  absl::Status CheckTokenTable(const std::string& name, const FoundTensor& second) const;

  const v1::ModelSpec& model_;
  const TensorSet& source_;
  const std::vector<TensorNames> names_;
  // For each of `names_`: its pieces.
  std::vector<std::vector<FoundTensor>> pieces_;
  std::vector<TensorToWrite> targets_;
  std::set<std::string> used_;
};

absl::StatusOr<FoundTensor> Import::Find(const TensorNames& names, const TensorPiece& piece) {
  // The model without its head was saved: names have no prefix.
  const std::string bare(absl::StripPrefix(piece.name, "transformer."));
  for (const std::string& name : {piece.name, bare}) {
    const auto found = source_.tensors().find(name);
    if (found == source_.tensors().end()) continue;
    used_.insert(name);
    const std::vector<int64_t> expected = ShapeOfPiece(names, piece);
    if (found->second.tensor->shape == expected) return found->second;
    return absl::InvalidArgumentError(absl::StrCat("'", found->second.file->path(), "': tensor '", name,
                                                   "' is ", ShapeText(found->second.tensor->shape),
                                                   "; by config.json it is ", ShapeText(expected)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", source_.folder(), "' has no tensor '", piece.name, "', which config.json asks for"));
}

absl::Status Import::PlanTensor(const TensorNames& names) {
  std::vector<FoundTensor>& pieces = pieces_.emplace_back();
  for (const TensorPiece& piece : names.pieces) {
    PENSTOCK_ASSIGN_OR_RETURN(const FoundTensor found, Find(names, piece));
    const std::string& type = found.tensor->type;
    if (type != "F64" && type != "F32" && type != "BF16" && type != "F16") {
      return absl::InvalidArgumentError(absl::StrCat("'", found.file->path(), "': tensor '", piece.name,
                                                     "' is of type ", type,
                                                     "; known are F64, F32, BF16 and F16"));
    }
    if (!pieces.empty() && pieces.front().tensor->type != type) {
      return absl::InvalidArgumentError(absl::StrCat("'", found.file->path(), "': tensor '", piece.name,
                                                     "' is of type ", type, ", '", names.pieces.front().name,
                                                     "' of ", pieces.front().tensor->type));
    }
    pieces.push_back(found);
  }
  targets_.push_back({names.name, pieces.front().tensor->type, names.shape()});
  return absl::OkStatus();
}

absl::Status Import::Plan() {
  for (const TensorNames& names : names_) PENSTOCK_RETURN_IF_ERROR(PlanTensor(names));
  for (const auto& [name, found] : source_.tensors()) {
    if (used_.contains(name) || IsBuffer(name)) continue;
    if (IsTokenTable(name, model_)) {
      PENSTOCK_RETURN_IF_ERROR(CheckTokenTable(name, found));
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("'", found.file->path(), "': tensor '", name,
                                                   "' is none of the model that config.json describes"));
  }
  return absl::OkStatus();
}

// A second name of the token table with other numbers would be dropped, and another model trained.
absl::Status Import::CheckTokenTable(const std::string& name, const FoundTensor& second) const {
  for (size_t i = 0; i < names_.size(); ++i) {
    if (names_[i].name != kTokenTable) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const bool equal, AreEqual(pieces_[i].front(), second));
    if (equal) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "'", second.file->path(), "': tensor '", name, "' is not '", names_[i].pieces.front().name,
        "', to which config.json ties it; set tie_word_embeddings to false, or remove the tensor"));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Import::Write(const std::string& path) const {
  PENSTOCK_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, targets_));
  uint64_t bytes = 0;
  for (size_t i = 0; i < names_.size(); ++i) {
    for (size_t piece = 0; piece < names_[i].pieces.size(); ++piece) {
      PENSTOCK_RETURN_IF_ERROR(
          AppendFromPiece(pieces_[i][piece], names_[i], names_[i].pieces[piece], writer));
    }
    bytes += targets_[i].bytes();
  }
  PENSTOCK_RETURN_IF_ERROR(writer.Finish());
  return bytes;
}

// Of a T5 whose configuration leaves that open.
absl::StatusOr<bool> HasAHeadOfItsOwn(const v1::ModelSpec& model, const TensorSet& source) {
  if (!model.unscaled_head()) return false;
  const auto head = source.tensors().find("lm_head.weight");
  const auto table = source.tensors().find("shared.weight");
  if (head == source.tensors().end() || table == source.tensors().end()) return false;
  PENSTOCK_ASSIGN_OR_RETURN(const bool equal, AreEqual(head->second, table->second));
  return !equal;
}

}  // namespace

absl::StatusOr<ImportedModel> ImportModel(const std::string& from, const std::string& to) {
  ImportedModel result;
  PENSTOCK_ASSIGN_OR_RETURN(result.model, ReadHuggingFaceConfig(from));
  v1::ModelSpec& model = result.model.spec;
  if (model.max_sequence_length() == 0) model.set_max_sequence_length(kLongestOfRelativePositions);
  PENSTOCK_ASSIGN_OR_RETURN(const TensorSet source, TensorSet::OpenHuggingFace(from));
  PENSTOCK_ASSIGN_OR_RETURN(const bool own_head, HasAHeadOfItsOwn(model, source));
  if (own_head) UntieHead(model);
  Import import(model, result.model.family, source);
  PENSTOCK_RETURN_IF_ERROR(import.Plan());
  PENSTOCK_ASSIGN_OR_RETURN(const std::string target, PrepareImport(to));
  PENSTOCK_ASSIGN_OR_RETURN(result.bytes, import.Write(target));
  result.tensors = import.tensors();
  PENSTOCK_ASSIGN_OR_RETURN(result.files, KeepFiles(from, to));
  PENSTOCK_RETURN_IF_ERROR(WriteModel(to, model));
  PENSTOCK_RETURN_IF_ERROR(CompleteImport(to));
  return result;
}

}  // namespace penstock::cli
