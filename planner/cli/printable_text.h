// Text from files that anybody may have written, made safe to show on a terminal.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace penstock::cli {

// The text with every control character but the end of a line, and every byte that is not UTF-8, written as
// \xNN: a terminal takes them for commands.
std::string PrintableText(absl::string_view text);

}  // namespace penstock::cli
