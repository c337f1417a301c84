#include "common/process/listeners.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/sync/sync.h"

namespace penstock {
namespace {

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

bool Listens(int descriptor) {
  int listens = 0;
  socklen_t size = sizeof(listens);
  return getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
}

// Descriptors by the inode of the socket: a number may be another socket's by now.
std::map<ino_t, int> ListeningSockets() {
  std::map<ino_t, int> sockets;
  const std::unique_ptr<DIR, CloseFolder> folder(opendir("/proc/self/fd"));
  if (folder == nullptr) return sockets;
  while (const dirent* entry = readdir(folder.get())) {
    int descriptor = -1;
    struct stat status = {};
    if (absl::SimpleAtoi(entry->d_name, &descriptor) && Listens(descriptor) &&
        fstat(descriptor, &status) == 0) {
      sockets[status.st_ino] = descriptor;
    }
  }
  return sockets;
}

absl::Status Failure(absl::string_view doing) {
  return absl::UnavailableError(absl::StrCat("cannot ", doing, ": ", std::strerror(errno)));
}

Mutex& Turn() {
  static auto& turn = *new Mutex;
  return turn;
}

}  // namespace

absl::Status Listeners::Refuse() const {
  // Keeps no byte of any packet.
  sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program = {.len = 1, .filter = &drop};
  for (const FileDescriptor& socket : sockets_) {
    if (setsockopt(socket.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) != 0)
      return Failure("close a port");
  }
  return absl::OkStatus();
}

absl::Status Listeners::Hear() const {
  const int unused = 0;
  for (const FileDescriptor& socket : sockets_) {
    if (setsockopt(socket.get(), SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused)) != 0)
      return Failure("open a port again");
  }
  return absl::OkStatus();
}

absl::Status Listeners::LimitWaiting(int connections) const {
  for (const FileDescriptor& socket : sockets_) {
    if (listen(socket.get(), connections) != 0) return Failure("limit who waits at a port");
  }
  return absl::OkStatus();
}

Listeners ListenersOpenedBy(const std::function<void()>& open) {
  MutexLock lock(&Turn());
  const std::map<ino_t, int> before = ListeningSockets();
  open();
  std::vector<FileDescriptor> opened;
  for (const auto& [inode, descriptor] : ListeningSockets()) {
    if (!before.contains(inode)) opened.emplace_back(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  }
  return Listeners(std::move(opened));
}

}  // namespace penstock
