// How far `penstock dataset import` is, in a line.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/dataset/import.h"

namespace penstock::cli {

// When a line is due, and what it says. Times are since any one moment.
//
//   ImportProgressLines lines(/*every=*/absl::Seconds(1));
//   if (const auto line = lines.Next(progress, now)) Print(*line);
class ImportProgressLines {
 public:
  // The first one comes after `every`, and not within the first seconds: short imports say nothing.
  explicit ImportProgressLines(absl::Duration every) : every_(every) {}

  // "41 % of 12,345 MB (file 38 of 120), 3,200,000 samples, 21.3 MB/s, 12 min left", where a line is due.
  std::optional<std::string> Next(const ImportProgress& progress, absl::Duration now);

 private:
  struct First {
    absl::Duration time;
    uint64_t bytes = 0;
  };

  const absl::Duration every_;
  // What was there before comes at no time.
  std::optional<First> first_;
  absl::Duration last_;
};

// "2 h 5 min", "12 min", "40 s": for people who wait.
std::string TimeLeft(absl::Duration time);

// Prints the lines on stderr: over one another on a terminal, about one a second; else one each 30 s.
class ImportProgressPrinter {
 public:
  ImportProgressPrinter();
  // Clears the line of a terminal.
  ~ImportProgressPrinter();
  ImportProgressPrinter(const ImportProgressPrinter&) = delete;
  ImportProgressPrinter& operator=(const ImportProgressPrinter&) = delete;

  void Show(const ImportProgress& progress);

 private:
  const bool on_terminal_;
  ImportProgressLines lines_;
  bool shown_ = false;
};

}  // namespace penstock::cli
