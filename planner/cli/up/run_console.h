// What a run tells people while it goes on: lines of text, and one line of progress that is written over on a
// terminal and is a line of its own elsewhere. Others may have written the text: it is made printable.
#pragma once

#include <cstdio>
#include <string>

namespace penstock::cli {

class RunConsole {
 public:
  // `json_on_stdout`: stdout is for machines, text goes to stderr.
  explicit RunConsole(bool json_on_stdout);
  // Says nothing.
  static RunConsole Silent() { return RunConsole(nullptr, /*on_terminal=*/false); }

  void Say(const std::string& text) const;
  // The same while there may be a line of progress.
  void SayNews(const std::string& text) const;
  void SayProgress(const std::string& line) const;
  // What follows is below the line of progress.
  void EndProgress() const;

 private:
  RunConsole(std::FILE* output, bool on_terminal) : output_(output), on_terminal_(on_terminal) {}

  // Null: nobody listens.
  std::FILE* const output_;
  const bool on_terminal_;
};

}  // namespace penstock::cli
