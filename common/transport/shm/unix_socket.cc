// SPDX-License-Identifier: Apache-2.0
#include "common/transport/shm/unix_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/base/system_error.h"

namespace baton::transport {
namespace {

constexpr int kMaxNamesakes = 64;

absl::StatusOr<sockaddr_un> Address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path of ", path.size(), " bytes, the limit is ",
                     sizeof address.sun_path - 1, "; choose a shorter socket_dir: ", path));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<UniqueFd> NewSocket() {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    return absl::ResourceExhaustedError(absl::StrCat("no socket: ", ErrnoText(errno)));
  }
  return fd;
}

// Held while a socket's file is made: between bind and listen a live socket
// looks like one of a dead process.
absl::StatusOr<UniqueFd> LockFolder(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/lock");
  UniqueFd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid() || flock(lock.get(), LOCK_EX) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot lock ", path, ": ", ErrnoText(errno)));
  }
  return lock;
}

int BindTo(const UniqueFd& fd, const sockaddr_un& address) {
  return bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0
                                                                                          : errno;
}

absl::Status Bind(const UniqueFd& fd, const sockaddr_un& address, const std::string& path) {
  int error = BindTo(fd, address);
  if (error == EADDRINUSE) {
    const absl::StatusOr<UniqueFd> other = DialUnix(path);
    if (other.ok()) {
      return absl::AlreadyExistsError(absl::StrCat("another process listens on ", path));
    }
    unlink(path.c_str());  // its process is dead
    error = BindTo(fd, address);
  }
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", path, ": ", ErrnoText(error)));
  }
  return absl::OkStatus();
}

// Removes the file unless it is another's by now.
void Remove(const std::string& path, dev_t device, ino_t inode) {
  struct stat now {};
  if (lstat(path.c_str(), &now) == 0 && now.st_dev == device && now.st_ino == inode) {
    unlink(path.c_str());
  }
}

// ALREADY_EXISTS when a live process listens there.
absl::StatusOr<Listener> ListenAt(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const sockaddr_un address, Address(path));
  Listener listener;
  BATON_ASSIGN_OR_RETURN(listener.socket, NewSocket());
  BATON_RETURN_IF_ERROR(Bind(listener.socket, address, path));
  struct stat file {};
  lstat(path.c_str(), &file);
  listener.on_close = [path, device = file.st_dev, inode = file.st_ino] {
    Remove(path, device, inode);
  };
  // Nobody can connect before listen, so the mode is in place in time.
  if (chmod(path.c_str(), 0600) != 0 || listen(listener.socket.get(), Listener::kBacklog) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", path, ": ", ErrnoText(errno)));
  }
  listener.endpoint = {"shm", path};
  return listener;
}

}  // namespace

absl::StatusOr<UniqueFd> DialUnix(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const sockaddr_un address, Address(path));
  BATON_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket());
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot connect to ", path, ": ", ErrnoText(errno)));
  }
  return fd;
}

absl::StatusOr<Listener> ListenUnix(const ReceiverOptions& options) {
  const std::span id(reinterpret_cast<const std::byte*>(options.receiver_id.data()),
                     options.receiver_id.size());
  mkdir(options.socket_dir.c_str(), 0700);  // mostly there already; the lock says what is wrong
  BATON_ASSIGN_OR_RETURN(const UniqueFd lock, LockFolder(options.socket_dir));
  absl::Status status;
  // Workers of several clusters on one host may share an id.
  for (int turn = 0; turn < kMaxNamesakes; ++turn) {
    const std::string path =
        absl::StrFormat("%s/kv-%08x-%d.sock", options.socket_dir, Crc32c(id), turn);
    absl::StatusOr<Listener> listener = ListenAt(path);
    if (!absl::IsAlreadyExists(listener.status())) return listener;
    status = listener.status();
  }
  return absl::UnavailableError(status.message());
}

}  // namespace baton::transport
