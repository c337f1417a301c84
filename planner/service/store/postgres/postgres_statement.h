// What is asked of a PostgreSQL server, and what it answers.
#pragma once

#include <libpq-fe.h>

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace penstock {

// A number is bigint, bytes are bytea or text.
using PostgresValue = std::variant<uint64_t, absl::string_view>;

struct PostgresStatement {
  // With $1, $2, ... Prepared once for each connection: the same text is the same statement.
  const char* sql = nullptr;
  // Bytes live until the statement was run.
  std::vector<PostgresValue> parameters = {};
};

// The rows that a statement gave.
class PostgresResult {
 public:
  explicit PostgresResult(PGresult* result) : result_(result) {}

  int rows() const { return PQntuples(result_.get()); }
  // Rows that an UPDATE or DELETE changed.
  uint64_t changed() const;
  // Of a column of type bigint.
  uint64_t Number(int row, int column) const;
  // Of a column of type bytea or text.
  std::string Bytes(int row, int column) const;

  PGresult* get() const { return result_.get(); }

 private:
  struct Clear {
    void operator()(PGresult* result) const { PQclear(result); }
  };
  std::unique_ptr<PGresult, Clear> result_;
};

}  // namespace penstock
