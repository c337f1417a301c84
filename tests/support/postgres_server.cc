#include "tests/support/postgres_server.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"

namespace penstock {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

// Debian's folder of the newest version; empty: not installed.
std::string Programs() {
  std::vector<std::string> versions;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/usr/lib/postgresql", error)) {
    if (std::filesystem::exists(entry.path() / "bin/initdb")) versions.push_back(entry.path().string());
  }
  return versions.empty() ? "" : absl::StrCat(*std::ranges::max_element(versions), "/bin/");
}

// Root may not run a server; the package's user may.
const passwd* ServerUser() { return getuid() == 0 ? getpwnam("postgres") : getpwuid(getuid()); }

// `arguments`, as the user who runs the server. PostgreSQL stops at once when this process ends (SIGQUIT).
std::vector<std::string> AsServerUser(std::vector<std::string> arguments) {
  if (getuid() != 0) return arguments;
  std::vector<std::string> command = {"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups",
                                      "--pdeathsig=QUIT"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

absl::Status RunToEnd(const std::vector<std::string>& arguments, const std::string& log,
                      const std::string& output = "") {
  PENSTOCK_ASSIGN_OR_RETURN(
      const auto process,
      ChildProcess::Start({.arguments = arguments, .log_path = log, .output_path = output}));
  const auto ended = process->WaitFor(kPatience);
  if (ended.has_value() && ended->ok()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(arguments[0], ": ", ended.has_value() ? ended->ToString() : "too slow"));
}

}  // namespace

std::optional<std::string> PostgresServer::WhyNot() {
  if (Programs().empty()) return "PostgreSQL is not installed (package postgresql)";
  if (ServerUser() == nullptr) return "there is no user 'postgres' to run a server";
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<PostgresServer>> PostgresServer::Start(bool flushes) {
  auto server = std::unique_ptr<PostgresServer>(new PostgresServer(flushes));
  PENSTOCK_RETURN_IF_ERROR(server->Initialise());
  PENSTOCK_RETURN_IF_ERROR(server->Run());
  return server;
}

PostgresServer* PostgresServer::Shared() {
  static const absl::StatusOr<std::unique_ptr<PostgresServer>> server = Start();
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? server->get() : nullptr;
}

void PostgresServer::Admit(const std::string& path) {
  const passwd* user = ServerUser();
  if (user != nullptr && chown(path.c_str(), user->pw_uid, user->pw_gid) != 0) perror(path.c_str());
}

absl::Status PostgresServer::Initialise() {
  for (const TemporaryFolder* folder : {&folder_, &socket_folder_}) Admit(folder->path());
  return RunToEnd(
      AsServerUser({Programs() + "initdb", "--pgdata", folder_.Path("data"), "--username=penstock",
                    "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "--no-instructions"}),
      socket_folder_.Path("initdb.log"));
}

absl::Status PostgresServer::Run() {
  const std::string log = socket_folder_.Path("postgres.log");
  PENSTOCK_ASSIGN_OR_RETURN(
      process_,
      ChildProcess::Start({.arguments = AsServerUser(
                               {Programs() + "postgres", "-D", folder_.Path("data"), "-k",
                                socket_folder_.path(), "-c", "listen_addresses=", "-c", "shared_buffers=16MB",
                                "-c", "max_connections=20", "-c", flushes_ ? "fsync=on" : "fsync=off"}),
                           .log_path = log}));
  const std::vector<std::string> ready = {Programs() + "pg_isready", "--quiet", "--host",
                                          socket_folder_.path()};
  const absl::Time deadline = absl::Now() + kPatience;
  while (!RunToEnd(ready, log).ok()) {
    if (process_->WaitFor(absl::Milliseconds(20)).has_value() || absl::Now() > deadline) {
      return absl::InternalError(
          absl::StrCat("the server did not start: ", socket_folder_.Read("postgres.log")));
    }
  }
  return absl::OkStatus();
}

PostgresServer::~PostgresServer() {
  if (process_ == nullptr) return;
  // At once, with all its processes: its data are not needed any more.
  process_->Signal(SIGQUIT);
  process_->WaitFor(kPatience);
}

std::string PostgresServer::Url(const std::string& database) const {
  return absl::StrCat("postgres://penstock@/", database, "?host=", socket_folder_.path());
}

std::string PostgresServer::NewDatabase() {
  const std::string name = absl::StrCat("test", ++databases_);
  Sql("postgres", absl::StrCat("CREATE DATABASE ", name));
  return name;
}

std::string PostgresServer::Sql(const std::string& database, const std::string& sql) const {
  for (const char* name : {"psql.out", "psql.log"}) std::filesystem::remove(socket_folder_.Path(name));
  const absl::Status status = RunToEnd({Programs() + "psql", "--no-psqlrc", "--quiet", "--no-align",
                                        "--tuples-only", "-c", sql, Url(database)},
                                       socket_folder_.Path("psql.log"), socket_folder_.Path("psql.out"));
  EXPECT_TRUE(status.ok()) << sql << ": " << socket_folder_.Read("psql.log");
  std::string printed = socket_folder_.Read("psql.out");
  while (!printed.empty() && printed.back() == '\n') printed.pop_back();
  return printed;
}

void PostgresServer::Kill() {
  if (process_ == nullptr) return;
  // Its other processes notice and end by themselves; a new server waits for that.
  process_->Signal(SIGKILL);
  process_->WaitFor(kPatience);
  process_.reset();
}

void PostgresServer::Stop() {
  if (process_ == nullptr) return;
  // To a server SIGINT means to end its connections and stop.
  process_->Signal(SIGINT);
  process_->WaitFor(kPatience);
  process_.reset();
}

absl::Status PostgresServer::Restart() {
  // What a killed server left keeps the next one out for a moment.
  const absl::Time deadline = absl::Now() + kPatience;
  while (true) {
    const absl::Status status = Run();
    if (status.ok() || absl::Now() > deadline) return status;
  }
}

}  // namespace penstock
