// Whole files, read and written with errors that name them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

// The contents of a file.
// Possible errors: NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE (reading failed); all name the path.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Writes the file aside ("PATH.partial"), flushes it to disk, renames it and flushes its folder: readers see
// the old contents or the new, never a part, and after a power failure the new ones are there. Missing
// folders are made; a link stays, and the file that it names is written; a file that was there keeps its
// permissions. On an error nothing is left aside.
//
// What is no regular file (a device, a FIFO) cannot be replaced: it is written through, as is the file that
// this process prints to ("/dev/stdout"). Blocks, for a FIFO until somebody reads: at most 10 s for a reader
// to come, and a minute while it takes nothing.
//
// Possible errors: INVALID_ARGUMENT (a folder), PERMISSION_DENIED, RESOURCE_EXHAUSTED (the disk is full),
// DEADLINE_EXCEEDED (nobody reads), UNAVAILABLE; all name the path.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents);

// Flushes a folder to disk: what was made, renamed and removed in it stays so. File systems that cannot do
// that are taken at their word. Possible errors: NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE; all name the
// path.
absl::Status SyncFolder(const std::string& path);

// Flushes what was written to a file to disk. Possible errors: as ReadFile.
absl::Status SyncFile(const std::string& path);

// Removes a file; one that is not there is no error. Possible errors: INVALID_ARGUMENT (a folder that is not
// empty), PERMISSION_DENIED, UNAVAILABLE; all name the path.
absl::Status RemoveFile(const std::string& path);

// Whether WriteFileAtomically can be expected to work, for those who want to know before long work. Makes
// missing folders and nothing else. Possible errors: INVALID_ARGUMENT, PERMISSION_DENIED, UNAVAILABLE.
absl::Status CheckWritable(const std::string& path);

// The file to replace where `path` names one, perhaps through links: for those who write aside and rename
// themselves. It need not exist.
// Possible errors: INVALID_ARGUMENT (a folder, a device, a FIFO; a circle of links).
absl::StatusOr<std::string> FileToReplace(const std::string& path);

}  // namespace penstock
