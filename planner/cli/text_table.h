// A table for the terminal: the first column left-aligned, the others right-aligned.
//
//   TextTable table({"policy", "makespan ms"});
//   table.AddRow({"dynamic", "9604.1"});
//   std::cout << table.ToString();
#pragma once

#include <string>
#include <vector>

namespace penstock::cli {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) : rows_{std::move(header)} {}

  // As many cells as the header has.
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// "12.5%" for 0.125.
std::string Percent(double ratio);
// A number with `digits` digits behind the point.
std::string Fixed(double value, int digits);

}  // namespace penstock::cli
