// Text that others may have written (files, workers, planners), made safe to show on a terminal. Whatever
// commands print goes through this: PrintOut here, RunConsole of `up` and `feed`, errors in CommandSet.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace penstock::cli {

// The text with every control character but the end of a line, and every byte that is not UTF-8, written as
// \xNN: a terminal takes them for commands.
std::string PrintableText(absl::string_view text);

// Writes the printable text to stdout.
void PrintOut(absl::string_view text);

}  // namespace penstock::cli
