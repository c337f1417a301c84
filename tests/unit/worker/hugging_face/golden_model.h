// A golden model of this folder: a checkpoint that transformers wrote, and what it computed with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/program/program.h"

namespace penstock::worker {

struct GoldenSample {
  std::vector<int32_t> input;
  std::vector<int32_t> target;
};

struct GoldenModel {
  ModelConfig config;
  // Folders of checkpoints in Penstock's layout: the parameters, and their gradients.
  std::string parameters;
  std::string gradients;
  std::vector<GoldenSample> samples;
  double loss = 0;
  // The most probable tokens behind the input of the last sample.
  std::vector<int32_t> generated;
};

// Imports golden model `name` into `folder`. A test failure where that is not possible.
GoldenModel ImportGolden(const std::string& name, const std::string& folder);

// Folder of the golden model as transformers wrote it.
std::string GoldenFolder(const std::string& name);

// Exports what ImportGolden made in `folder` to `to`. `most_file_bytes`: of a file of several.
void ExportGolden(const std::string& folder, const std::string& to, uint64_t most_file_bytes);

// The tensors of a folder of Hugging Face's: name, type, shape and data of each, as one text each, in order
// of names.
std::vector<std::string> TensorsOf(const std::string& folder);

}  // namespace penstock::worker
