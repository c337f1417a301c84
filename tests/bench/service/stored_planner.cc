#include "tests/bench/service/stored_planner.h"

#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace penstock::bench {

absl::StatusOr<std::string> StoredPlanner::MakeStore(const std::string& store) {
  if (store == "memory") return store;
  if (store == "sqlite") return absl::StrCat("sqlite:", folder_.Path("planner.db"));
  if (store != "postgres") {
    return absl::InvalidArgumentError(absl::StrCat("--store: ", store, "; use memory, sqlite or postgres"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(server_, PostgresServer::Start(/*flushes=*/true));
  database_ = server_->NewDatabase();
  return server_->Url(database_);
}

absl::StatusOr<std::unique_ptr<StoredPlanner>> StoredPlanner::Start(const std::string& store,
                                                                    std::vector<std::string> flags) {
  auto planner = std::unique_ptr<StoredPlanner>(new StoredPlanner());
  PENSTOCK_ASSIGN_OR_RETURN(const std::string url, planner->MakeStore(store));
  flags.insert(flags.end(), {"--store", url, "--log-level", "warning"});
  PENSTOCK_ASSIGN_OR_RETURN(planner->process_, PlannerProcess::Start(PENSTOCK_PLANNER, std::move(flags)));
  return planner;
}

int64_t StoredPlanner::StoreBytes() const {
  int64_t bytes = 0;
  if (server_ != nullptr) {
    const std::string text = server_->Sql(database_, "SELECT pg_database_size(current_database())");
    return absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &bytes) ? bytes : 0;
  }
  for (const char* name : {"planner.db", "planner.db-wal"}) {
    std::error_code missing;
    const uintmax_t size = std::filesystem::file_size(folder_.Path(name), missing);
    if (!missing) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

}  // namespace penstock::bench
