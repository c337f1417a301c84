#include "planner/service/store/postgres/postgres_error.h"

#include <cstring>
#include <map>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

struct Meaning {
  // The beginning of the SQLSTATE (PostgreSQL's documentation, appendix A). The first that fits counts.
  absl::string_view state;
  absl::StatusCode code;
  absl::string_view advice;
};

constexpr absl::string_view kAgain = "it is tried again";
constexpr absl::string_view kWritable = "give the URL of a server that can be written, and a role that may";

constexpr Meaning kMeanings[] = {
    {"53100", absl::StatusCode::kResourceExhausted,
     "make room on the server's disk; the planner goes on by itself when there is some"},
    {"53200", absl::StatusCode::kResourceExhausted, "give the server more memory"},
    {"53", absl::StatusCode::kUnavailable, "raise max_connections of the server, or end other clients"},
    {"08", absl::StatusCode::kUnavailable, kAgain},
    // 57014 is a statement that took longer than statement_timeout, 57P01 to 57P03 a server that stops or
    // starts, 55P03 a lock that was waited for too long, 40 a deadlock.
    {"57", absl::StatusCode::kUnavailable, kAgain},
    {"55P03", absl::StatusCode::kUnavailable, kAgain},
    {"40", absl::StatusCode::kUnavailable, kAgain},
    {"25P03", absl::StatusCode::kUnavailable, kAgain},
    {"58", absl::StatusCode::kUnavailable, "look after the server's disk"},
    {"25006", absl::StatusCode::kFailedPrecondition, kWritable},
    {"42501", absl::StatusCode::kFailedPrecondition, kWritable},
    {"28", absl::StatusCode::kFailedPrecondition, kWritable},
    {"3", absl::StatusCode::kFailedPrecondition, "create the database and the schema, or give another URL"},
    {"42P01", absl::StatusCode::kFailedPrecondition,
     "the tables of the store were removed: restore them, or restart the planner to begin with an empty "
     "store"},
    {"23505", absl::StatusCode::kAborted, "somebody else writes to this store"},
    {"XX001", absl::StatusCode::kDataLoss, "the database is damaged: restore it from a copy"},
    {"XX002", absl::StatusCode::kDataLoss, "the database is damaged: restore it from a copy"},
};

Meaning MeaningOf(absl::string_view state) {
  for (const Meaning& meaning : kMeanings) {
    if (absl::StartsWith(state, meaning.state)) return meaning;
  }
  return {state, absl::StatusCode::kInternal, "this is a fault of the planner"};
}

absl::Status Error(absl::StatusCode code, const std::string& server, absl::string_view text,
                   absl::string_view advice) {
  return absl::Status(code,
                      absl::StrCat("store '", server, "': ", absl::StripAsciiWhitespace(text), "; ", advice));
}

}  // namespace

absl::Status PostgresError(const PGresult* result, const std::string& server) {
  const char* state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  const char* text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
  if (state == nullptr) return ConnectionError(PQresultErrorMessage(result), server);
  const Meaning meaning = MeaningOf(state);
  return Error(meaning.code, server, absl::StrCat(text == nullptr ? "" : text, " (", state, ")"),
               meaning.advice);
}

absl::Status ConnectionError(absl::string_view text, const std::string& server) {
  return Error(absl::StatusCode::kUnavailable, server, text,
               "see that the server runs and lets the planner in; it is tried again");
}

std::string ServerOf(const std::string& url) {
  struct Free {
    void operator()(PQconninfoOption* options) const { PQconninfoFree(options); }
  };
  const std::unique_ptr<PQconninfoOption, Free> options(PQconninfoParse(url.c_str(), nullptr));
  if (options == nullptr) return "postgres";
  std::map<absl::string_view, absl::string_view> values;
  for (const PQconninfoOption* option = options.get(); option->keyword != nullptr; ++option) {
    if (option->val != nullptr) values[option->keyword] = option->val;
  }
  const absl::string_view host = values.contains("host") ? values["host"] : values["hostaddr"];
  return absl::StrCat("postgres://", host, values["port"].empty() ? "" : ":", values["port"], "/",
                      values["dbname"]);
}

}  // namespace penstock
