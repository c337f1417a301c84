// Whole iterations of any mesh, or of several strategies by turns, their ranks as threads over Gloo: losses,
// norm, and the tensors of the checkpoint that they leave.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/dataset/indexed_dataset.h"
#include "tests/unit/worker/comm_testing.h"
#include "worker/program/job.h"
#include "worker/program/program.h"

namespace penstock::worker {

struct MeshOf {
  uint32_t replicas = 1;
  uint32_t stages = 1;
  uint32_t contexts = 1;
  uint32_t tensors = 1;
  uint32_t experts = 1;
  bool zero = false;
  // Passes go through micro-batches sample by sample.
  bool in_parts = false;
  // JobConfig.gradient_bucket_bytes, where it is another one than usual.
  int64_t bucket_bytes = 0;
  // Meshes side by side with it, of a job with shares: their replicas and ranks come behind.
  std::vector<MeshOf> beside = {};

  uint32_t own_ranks() const { return replicas * stages * contexts * tensors; }
  // Of all.
  uint32_t ranks() const {
    uint32_t ranks = own_ranks();
    for (const MeshOf& mesh : beside) ranks += mesh.own_ranks();
    return ranks;
  }
};

std::string NameOf(const MeshOf& mesh);

// "Gpt2"; "Llama": its token embedding is shared by the first and the last stage; "T5": its stages share
// relative biases and the token embedding; "Experts": a Llama whose layers have four. Of two layers.
// "AdaptedLlama", "AdaptedT5": the same with adapters of all linear layers, which alone learn.
ModelConfig ModelOf(const std::string& name);

JobConfig JobOf(const ModelConfig& model, const MeshOf& mesh);
// Whose parameters live in shares, and whose iterations run on any of the meshes, which have as many ranks.
JobConfig JobOfStrategies(const ModelConfig& model, const std::vector<MeshOf>& meshes);
// The same job, but that it was registered with the first strategy alone and got the others since.
JobConfig WithAddedStrategies(JobConfig job);

// Eight samples of 2 to 16 tokens, the first of which is input.
const IndexedDataset& TrainingSamples();

// Runs `body` on each rank in a thread of its own, with a communicator for all strategies of the job.
void RunJob(const JobConfig& job, const RankBody& body);

// What a rank runs in an iteration. `meshes`: of the job's strategies, which the iterations take by turns.
Program ProgramOf(const JobConfig& job, const std::vector<MeshOf>& meshes, uint64_t number, uint32_t rank);

// Norms of gradients by number of the part (ModelPart).
using PartNorms = std::map<uint32_t, double>;

struct Figures {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<PartNorms> parts;
};

// By iteration; of another mesh, whose sums have another order.
void ExpectEqual(const std::vector<PartNorms>& found, const std::vector<PartNorms>& expected,
                 double tolerance);

// Iterations [first, end) on all ranks of the job, from the checkpoint if there is one; leaves one in
// `folder`, of iteration `end`. `meshes`: of the job's strategies, which the iterations take by turns.
// Figures are summed over the ranks, whose norms are equal in every bit.
Figures Train(const JobConfig& job, const std::vector<MeshOf>& meshes, uint64_t first, uint64_t end,
              const std::string& from, const std::string& folder);
Figures Train(const ModelConfig& model, const MeshOf& mesh, uint64_t first, uint64_t end,
              const std::string& from, const std::string& folder);

// All tensors of a checkpoint that so many ranks have written, whole, of the shapes of `like`, or as they are
// there (null). Fails where two entries have the same elements.
std::map<std::string, at::Tensor> TensorsOf(const std::string& folder, uint64_t next, uint32_t ranks,
                                            const std::map<std::string, at::Tensor>* like);

// Relative to the largest element of a tensor, or to 1.
void ExpectEqual(const std::map<std::string, at::Tensor>& found,
                 const std::map<std::string, at::Tensor>& expected, double tolerance);

// What one rank makes of four iterations, and how they stand after two.
struct Reference {
  Figures figures;
  std::map<std::string, at::Tensor> tensors;
  std::string checkpoint;
};

const Reference& ReferenceOf(const std::string& name);

}  // namespace penstock::worker
