// How many files and connections this process may have open.
#pragma once

namespace penstock {

// Raises the limit to what the system allows at most (ulimit -Hn): the usual 1,024 are soon gone where
// strangers open connections, and then nobody else gets one. Where it cannot be raised it stays.
void AllowManyOpenFiles();

}  // namespace penstock
