// Early return on errors, for functions that return absl::Status or absl::StatusOr.
//
//   absl::StatusOr<Plan> Read(const std::string& path) {
//     PENSTOCK_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
//     PENSTOCK_RETURN_IF_ERROR(CheckHeader(text));
//     return Parse(text);
//   }
//
// Abseil of Debian 12 (20220623) does not have these macros.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define PENSTOCK_RETURN_IF_ERROR(expression)                                                        \
  do {                                                                                              \
    if (absl::Status penstock_status = (expression); !penstock_status.ok()) return penstock_status; \
  } while (false)

#define PENSTOCK_STATUS_CONCAT_INNER(a, b) a##b
#define PENSTOCK_STATUS_CONCAT(a, b) PENSTOCK_STATUS_CONCAT_INNER(a, b)

// A declaration cannot stand in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define PENSTOCK_ASSIGN_OR_RETURN(declaration, expression)                                           \
  PENSTOCK_ASSIGN_OR_RETURN_INNER(PENSTOCK_STATUS_CONCAT(penstock_statusor_, __LINE__), declaration, \
                                  expression)

#define PENSTOCK_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                            \
  if (!result.ok()) return std::move(result).status();                   \
  declaration = *std::move(result)
// NOLINTEND(bugprone-macro-parentheses)
