// The text of a Jinja template as transformers reads it, for a library that reads it otherwise.
#pragma once

#include <string>
#include <vector>

namespace penstock::worker {

// With trim_blocks and lstrip_blocks done: without the line end behind a {% %} or {# #}, and without the
// spaces and tabs between the begin of a line and such a tag, unless the tag says otherwise ({%+ %}, {% +%});
// and without the line end at the end of all.
std::string TrimBlocks(const std::string& source);

// The strings of which the template asks whether something has them: of `'</think>' in content`. Lists that
// are written out, `role in ['user']`, are left out.
std::vector<std::string> SearchedStrings(const std::string& source);

}  // namespace penstock::worker
