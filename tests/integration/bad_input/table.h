// Bad input, one row a line, in text files.
//
//   [penstock plan --rows 0:8]        a section: what the rows below it change
//   # why these are here              a comment
//   2 | --pp | --pp 0                 how it must end | what the message must name | the change
//
// Cells are trimmed; the last may hold '|'. What a section and a change mean is the test's.
#pragma once

#include <string>
#include <vector>

namespace penstock {

struct Row {
  // "plan.txt:12", for messages.
  std::string place;
  // Without its brackets.
  std::string section;
  std::string expected;
  std::string named;
  std::string change;
};

// All rows of the folder's .txt files, by name of the file; under sanitizers, which look for wrong memory,
// each third one. Fails the test where a line is none of the above.
std::vector<Row> ReadTable(const std::string& folder);

}  // namespace penstock
