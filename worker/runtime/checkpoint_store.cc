#include "worker/runtime/checkpoint_store.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/files/files.h"
#include "common/status/status_macros.h"

namespace penstock::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "iteration-";
constexpr std::string_view kPartial = ".partial";
constexpr const char* kManifest = "manifest.json";
// Of a job (docs/operations.md).
constexpr uint64_t kMostRanks = 1 << 16;

std::string FinalPath(const std::string& directory, uint64_t next_iteration) {
  return (fs::path(directory) / absl::StrCat("iteration-", next_iteration)).string();
}

std::string PartialPath(const std::string& directory, uint64_t next_iteration) {
  return FinalPath(directory, next_iteration) + std::string(kPartial);
}

absl::Status FolderError(const std::string& path, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat("'", path, "': ", error.message()));
}

// Iterations of the folders that have a final name and a manifest, descending.
std::vector<uint64_t> CompleteIterations(const std::string& directory) {
  std::vector<uint64_t> iterations;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    uint64_t iteration = 0;
    if (name.rfind(kPrefix, 0) == 0 && absl::SimpleAtoi(name.substr(kPrefix.size()), &iteration) &&
        fs::exists(entry.path() / kManifest, error)) {
      iterations.push_back(iteration);
    }
  }
  std::ranges::sort(iterations, std::ranges::greater());
  return iterations;
}

// Of a checkpoint that continues with `next_iteration`.
absl::StatusOr<nlohmann::json> ReadManifest(const std::string& path, uint64_t next_iteration) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  nlohmann::json manifest = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto wrong = [&](const std::string& expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "' is no manifest of a checkpoint: expected ", expected));
  };
  const auto is_count = [&](const char* key) {
    return manifest.contains(key) && manifest[key].is_number_unsigned();
  };
  if (!manifest.is_object() || !is_count("ranks")) return wrong("an object with \"ranks\"");
  const auto ranks = manifest["ranks"].get<uint64_t>();
  if (ranks == 0 || ranks > kMostRanks) return wrong(absl::StrCat("\"ranks\" of 1 to ", kMostRanks));
  if (!is_count("next_iteration") || manifest["next_iteration"].get<uint64_t>() != next_iteration)
    return wrong(absl::StrCat("\"next_iteration\" ", next_iteration, ", as its folder is named"));
  return manifest;
}

// NOT_FOUND: it went away meanwhile.
absl::StatusOr<CompleteCheckpoint> OpenCheckpoint(const std::string& directory, uint64_t next_iteration) {
  CompleteCheckpoint checkpoint = {.path = FinalPath(directory, next_iteration),
                                   .next_iteration = next_iteration};
  PENSTOCK_ASSIGN_OR_RETURN(const nlohmann::json manifest,
                            ReadManifest((fs::path(checkpoint.path) / kManifest).string(), next_iteration));
  checkpoint.ranks = manifest["ranks"].get<uint32_t>();
  if (manifest.contains("job") && manifest["job"].is_string()) checkpoint.job_id = manifest["job"];
  return checkpoint;
}

std::string ManifestOf(uint64_t next_iteration, const JobConfig& job) {
  const nlohmann::ordered_json manifest = {{"format", 1},
                                           {"job", job.job_id},
                                           {"next_iteration", next_iteration},
                                           {"ranks", job.world_size()},
                                           {"pipeline", job.pipeline},
                                           {"data", job.replicas}};
  return manifest.dump(2) + "\n";
}

}  // namespace

std::string RankFile(const std::string& path, uint32_t rank) {
  return (fs::path(path) / absl::StrCat("rank-", rank, ".safetensors")).string();
}

absl::StatusOr<std::optional<CompleteCheckpoint>> FindNewestCheckpoint(const std::string& directory) {
  for (const uint64_t iteration : CompleteIterations(directory)) {
    absl::StatusOr<CompleteCheckpoint> checkpoint = OpenCheckpoint(directory, iteration);
    if (!absl::IsNotFound(checkpoint.status())) return checkpoint;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<CompleteCheckpoint>> FindCheckpointOfJob(
    const std::string& directory, const std::string& job_id,
    const std::optional<CompleteCheckpoint>& started_from) {
  for (const uint64_t iteration : CompleteIterations(directory)) {
    absl::StatusOr<CompleteCheckpoint> checkpoint = OpenCheckpoint(directory, iteration);
    if (absl::IsNotFound(checkpoint.status())) continue;
    if (!checkpoint.ok() || checkpoint->job_id == job_id) return checkpoint;
  }
  return started_from;
}

absl::StatusOr<std::string> MakePartialCheckpoint(const std::string& directory, uint64_t next_iteration) {
  const std::string path = PartialPath(directory, next_iteration);
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return FolderError(path, error);
  return path;
}

absl::Status CompleteCheckpointFolder(const std::string& directory, uint64_t next_iteration,
                                      const JobConfig& job, size_t keep) {
  const std::string partial = PartialPath(directory, next_iteration);
  const std::string complete = FinalPath(directory, next_iteration);
  PENSTOCK_RETURN_IF_ERROR(
      WriteFileAtomically((fs::path(partial) / kManifest).string(), ManifestOf(next_iteration, job)));
  std::error_code error;
  // Whoever looks for a checkpoint never finds one of which some files are removed already.
  const std::string replaced = complete + ".replaced" + std::string(kPartial);
  fs::rename(complete, replaced, error);
  fs::rename(partial, complete, error);
  if (error) return FolderError(complete, error);
  fs::remove_all(replaced, error);
  const std::vector<uint64_t> iterations = CompleteIterations(directory);
  for (size_t i = keep; i < iterations.size(); ++i)
    fs::remove_all(FinalPath(directory, iterations[i]), error);
  return absl::OkStatus();
}

void RemovePartialCheckpoints(const std::string& directory) {
  std::error_code error;
  std::vector<fs::path> partial;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().extension() == kPartial) partial.push_back(entry.path());
  }
  for (const fs::path& path : partial) fs::remove_all(path, error);
}

}  // namespace penstock::worker
