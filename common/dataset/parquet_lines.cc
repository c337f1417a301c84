#include "common/dataset/parquet_lines.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/process/spawn.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr size_t kParquetBuffer = 1 << 18;

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  return environment;
}

std::string LastLineIn(int file) {
  std::string text(size_t{4096}, '\0');
  const ssize_t bytes = pread(file, text.data(), text.size(), 0);
  text.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  return lines.empty() ? "it has said nothing" : lines.back();
}

}  // namespace

absl::StatusOr<ParquetLines> ParquetLines::Open(const std::string& program, const std::string& path) {
  if (program.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "'", path,
        "': to read Parquet is an optional part of Penstock, penstock-parquet, which is not beside "
        "penstock: run deploy/setup parquet and build again, or save the data as JSON lines"));
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return SystemError(errno, "cannot make a pipe for penstock-parquet");
  FileDescriptor own(ends[0]);
  FileDescriptor child(ends[1]);
  FileDescriptor said(memfd_create("penstock-parquet", MFD_CLOEXEC));
  PENSTOCK_ASSIGN_OR_RETURN(const pid_t pid, Spawn({.program = program,
                                                    .arguments = {program, path},
                                                    .environment = OwnEnvironment(),
                                                    .output = child.get(),
                                                    .error = said.get()}));
  // Held open here, it would hide the end of the rows.
  child.Close();
  return ParquetLines(path, pid, std::move(own), std::move(said));
}

ParquetLines::ParquetLines(std::string path, pid_t pid, FileDescriptor output, FileDescriptor said)
    : path_(std::move(path)), pid_(pid), output_(std::move(output)), said_(std::move(said)) {}

ParquetLines::ParquetLines(ParquetLines&& other) noexcept
    : path_(std::move(other.path_)),
      pid_(std::exchange(other.pid_, -1)),
      output_(std::move(other.output_)),
      said_(std::move(other.said_)),
      buffer_(std::move(other.buffer_)),
      position_(other.position_),
      line_number_(other.line_number_) {}

ParquetLines::~ParquetLines() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

absl::Status ParquetLines::End() {
  int ended = 0;
  while (waitpid(pid_, &ended, 0) < 0 && errno == EINTR) continue;
  pid_ = -1;
  if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return absl::OkStatus();
  const std::string why = WIFSIGNALED(ended)
                              ? absl::StrCat("penstock-parquet was ended by signal ", WTERMSIG(ended))
                              : LastLineIn(said_.get());
  return absl::InvalidArgumentError(
      absl::StrCat("'", path_, "', behind row ", line_number_, ": cannot be read as Parquet: ", why));
}

absl::StatusOr<bool> ParquetLines::Fill() {
  if (pid_ < 0) return false;
  buffer_.resize(kParquetBuffer);
  position_ = 0;
  ssize_t got = -1;
  do {
    got = read(output_.get(), buffer_.data(), buffer_.size());
  } while (got < 0 && errno == EINTR);
  buffer_.resize(got > 0 ? static_cast<size_t>(got) : 0);
  if (got < 0) return SystemError(errno, absl::StrCat("reading the rows of '", path_, "'"));
  if (got == 0) PENSTOCK_RETURN_IF_ERROR(End());
  return got > 0;
}

absl::StatusOr<bool> ParquetLines::Next(std::string* line) {
  line->clear();
  for (;;) {
    if (position_ == buffer_.size()) {
      PENSTOCK_ASSIGN_OR_RETURN(const bool more, Fill());
      // Every row ends with its line.
      if (!more) return false;
    }
    const size_t end = buffer_.find('\n', position_);
    line->append(buffer_, position_, end - position_);
    position_ = end == std::string::npos ? buffer_.size() : end + 1;
    if (end == std::string::npos) continue;
    ++line_number_;
    return true;
  }
}

}  // namespace penstock
