#include "planner/cli/up/run_console.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "planner/cli/printable_text.h"

namespace penstock::cli {
namespace {

constexpr const char* kToLineStart = "\r";
constexpr const char* kClearRestOfLine = "\x1b[K";

void Write(std::FILE* output, const std::string& text) {
  if (output == nullptr) return;
  std::fputs(text.c_str(), output);
  std::fflush(output);
}

}  // namespace

RunConsole::RunConsole(bool json_on_stdout)
    : output_(json_on_stdout ? stderr : stdout), on_terminal_(isatty(fileno(output_)) != 0) {}

void RunConsole::Say(const std::string& text) const {
  Write(output_, absl::StrCat(PrintableText(text), "\n"));
}

void RunConsole::SayNews(const std::string& text) const {
  if (on_terminal_) Write(output_, absl::StrCat(kToLineStart, kClearRestOfLine));
  Say(text);
}

void RunConsole::SayProgress(const std::string& line) const {
  if (!on_terminal_) return Say(line);
  Write(output_, absl::StrCat(kToLineStart, PrintableText(line), kClearRestOfLine));
}

void RunConsole::EndProgress() const {
  if (on_terminal_) Say("");
}

}  // namespace penstock::cli
