// `penstock backup`: a copy of a planner's store, while it runs.
#include <grpcpp/client_context.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/files/files.h"
#include "common/grpc/channel.h"
#include "common/grpc/status_conversion.h"
#include "common/hash/sha256.h"
#include "common/status/status_macros.h"
#include "penstock/v1/operations.grpc.pb.h"
#include "planner/cli/planner_flags.h"
#include "planner/cli/printable_text.h"
#include "planner/cli/store/store_commands.h"

namespace penstock::cli {
namespace {

struct BackupFlags {
  PlannerFlags planner;
  std::string to;
  double timeout_seconds = 3600;
};

absl::Status CannotWrite(const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat("--to: '", path, "' cannot be written: is there room, and may you?"));
}

// Where the backup comes to lie: under another name until it is whole.
class BackupFile {
 public:
  explicit BackupFile(const std::string& path)
      : path_(path), partial_(absl::StrCat(path, ".partial")), file_(partial_, std::ios::binary) {
    // It holds secrets of jobs.
    chmod(partial_.c_str(), S_IRUSR | S_IWUSR);
  }
  ~BackupFile() {
    if (!whole_) std::remove(partial_.c_str());
  }
  BackupFile(const BackupFile&) = delete;
  BackupFile& operator=(const BackupFile&) = delete;

  absl::Status Add(const std::string& bytes) {
    file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file_.good()) return CannotWrite(path_);
    sum_.Add(bytes);
    bytes_ += bytes.size();
    return absl::OkStatus();
  }

  absl::Status Finish(const v1::BackUpEnd& end) {
    file_.close();
    if (file_.fail()) return CannotWrite(path_);
    if (end.bytes() != bytes_ || end.sha256() != sum_.Digest())
      return absl::DataLossError("the planner's copy did not arrive as it was sent: try again");
    PENSTOCK_RETURN_IF_ERROR(SyncFile(partial_));
    if (std::rename(partial_.c_str(), path_.c_str()) != 0) return CannotWrite(path_);
    whole_ = true;
    return absl::OkStatus();
  }

  uint64_t bytes() const { return bytes_; }

 private:
  const std::string path_;
  const std::string partial_;
  std::ofstream file_;
  Sha256Sum sum_;
  uint64_t bytes_ = 0;
  bool whole_ = false;
};

absl::Status Receive(grpc::ClientReader<v1::BackUpResponse>& reader, BackupFile& file) {
  v1::BackUpResponse response;
  bool ended = false;
  while (reader.Read(&response)) {
    if (response.has_content()) PENSTOCK_RETURN_IF_ERROR(file.Add(response.content()));
    if (!response.has_end()) continue;
    PENSTOCK_RETURN_IF_ERROR(file.Finish(response.end()));
    ended = true;
  }
  const absl::Status status = FromStatusOfCall(reader.Finish());
  if (!status.ok()) return status;
  return ended ? absl::OkStatus() : absl::UnavailableError("the backup ended early: try again");
}

absl::Status RunBackup(const BackupFlags& flags) {
  PENSTOCK_ASSIGN_OR_RETURN(const ChannelSecurity security, SecurityOfChannels(flags.planner.security));
  const auto planner = v1::PlannerOperations::NewStub(
      CreateClientChannel(flags.planner.address, Keepalive(), Among::kLeader, security));
  const absl::Time begin = absl::Now();
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(begin + absl::Seconds(flags.timeout_seconds)));
  BackupFile file(flags.to);
  const auto reader = planner->BackUp(&context, v1::BackUpRequest());
  const absl::Status status = Receive(*reader, file);
  if (!status.ok()) {
    context.TryCancel();
    return flags.planner.Explained(status, security);
  }
  PrintOut(absl::StrCat(flags.to, ": ", absl::StrFormat("%.1f", static_cast<double>(file.bytes()) / 1e6),
                        " MB in ", absl::StrFormat("%.1f", absl::ToDoubleSeconds(absl::Now() - begin)),
                        " s\n"));
  return absl::OkStatus();
}

}  // namespace

void AddBackupCommand(CommandSet& commands) {
  auto flags = std::make_shared<BackupFlags>();
  CLI::App* command = commands.Add(
      {.name = "backup",
       .purpose = "Copies a planner's store while it runs (SQLite; PostgreSQL has tools of its own)",
       .examples = "penstock backup --planner localhost:7070 --to planner.backup"});
  flags->planner.AddTo(*command, kPlannerHelp)->required();
  command->add_option("--to", flags->to, "The file to write; it takes the place of one that is there")
      ->required();
  command->add_option("--timeout", flags->timeout_seconds, "Seconds that it may take")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e6));
  commands.OnRun(command, [flags] { return RunBackup(*flags); });
}

}  // namespace penstock::cli
