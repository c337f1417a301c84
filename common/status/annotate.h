// Puts context in front of an error's message: which file, which field.
//
//   return AnnotateError(status, absl::StrCat("reading '", path, "'"));   // "reading 'x.json': unexpected
//   end"
#pragma once

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace penstock {

// OK stays OK; the code of an error and its payloads stay as they are.
inline absl::Status AnnotateError(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) { annotated.SetPayload(type, payload); });
  return annotated;
}

}  // namespace penstock
