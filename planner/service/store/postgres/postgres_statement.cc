#include "planner/service/store/postgres/postgres_statement.h"

#include <endian.h>

#include <cstring>

#include "absl/strings/numbers.h"

namespace penstock {

uint64_t PostgresResult::changed() const {
  uint64_t changed = 0;
  return absl::SimpleAtoi(PQcmdTuples(result_.get()), &changed) ? changed : 0;
}

uint64_t PostgresResult::Number(int row, int column) const {
  uint64_t number = 0;
  if (PQgetlength(result_.get(), row, column) != sizeof(number)) return 0;
  std::memcpy(&number, PQgetvalue(result_.get(), row, column), sizeof(number));
  return be64toh(number);
}

std::string PostgresResult::Bytes(int row, int column) const {
  return std::string(PQgetvalue(result_.get(), row, column), PQgetlength(result_.get(), row, column));
}

}  // namespace penstock
