// SPDX-License-Identifier: Apache-2.0
#include "decode_worker/socket_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/base/system_error.h"

namespace baton::decode_worker {

absl::StatusOr<std::string> SocketFolder(const std::string& wanted) {
  const std::string folder = wanted.empty() ? absl::StrCat("/tmp/baton-", getuid()) : wanted;
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::UnavailableError(
        absl::StrCat("--socket-dir: cannot make ", folder, ": ", ErrnoText(errno)));
  }
  struct stat facts = {};
  if (lstat(folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat("--socket-dir: ", folder, " is no folder"));
  }
  if (facts.st_uid != getuid() || (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("--socket-dir: others may write to ", folder,
                                                      "; give a folder that is this user's alone"));
  }
  return folder;
}

}  // namespace baton::decode_worker
