// What the tensors of Hugging Face's checkpoints and of Penstock's have to do with each other: each of
// Penstock's (worker/model/parameters.h) is one of theirs, or several below each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/v1/job.pb.h"

namespace penstock::cli {

// A tensor of a Hugging Face checkpoint: `rows` rows of one of Penstock's.
struct TensorPiece {
  std::string name;
  int64_t rows = 0;
  // Stored as [columns, rows]: GPT-2's linear layers.
  bool transposed = false;
};

struct TensorNames {
  // Of Penstock.
  std::string name;
  // 0: a vector, [rows].
  int64_t columns = 0;
  // In the order of the rows.
  std::vector<TensorPiece> pieces;

  int64_t rows() const;
  // As safetensors has it.
  std::vector<int64_t> shape() const;
};

// Of all parameters of the model, each once, in their order. The model is one of FamilyOf's (a T5 with
// tied_embeddings).
std::vector<TensorNames> CheckpointNames(const v1::ModelSpec& model);

}  // namespace penstock::cli
