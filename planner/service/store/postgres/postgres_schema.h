// The tables of a PostgreSQL store, and how a database of an older version becomes one of this version. They
// lie in the first schema of the role's search_path; their names begin with penstock_.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "planner/service/store/postgres/postgres_connection.h"

namespace penstock {

// Migration i, one statement, makes a database of version i one of version i + 1; an empty one is of version
// 0. What was released is never changed: add another.
absl::Span<const char* const> PostgresMigrations();

// Brings a database to the version that the migrations end with, in one transaction; of several planners that
// do it at a time, one does. Possible errors: FAILED_PRECONDITION (a newer version; it is left as it is), and
// those of EventStore.
absl::Status MigratePostgres(PostgresConnection* connection, absl::Span<const char* const> migrations,
                             Deadline deadline);

}  // namespace penstock
