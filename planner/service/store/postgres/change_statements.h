// The statements that make changes of jobs in the tables of postgres_schema.h.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "planner/service/store/event_store.h"
#include "planner/service/store/postgres/postgres_statement.h"

namespace penstock {

// For changes that were checked (job_positions.h). Valid as long as `changes` are.
std::vector<PostgresStatement> StatementsOf(absl::Span<const JobChange> changes);

}  // namespace penstock
