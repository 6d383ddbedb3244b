// The rights of a process, and how this process takes them on: for code that works on a process's behalf and must not
// be able to do more than that process itself.
//
//     what                                    taken on                             from
//     user and group ids, groups              the same                             /proc/PID/status
//     user namespace                          entered, if it is another            /proc/PID/ns/user
//     capabilities                            the same                             /proc/PID/status
//     bounding set                            no more than its own                 /proc/PID/status
//     no_new_privs                            always set
//     being traced or read                    only by those who may trace the tool not dumpable
//     keys                                    none of the tool's                   a session keyring of its own
//
// Not taken on: seccomp filters, the label of a security module (AppArmor, SELinux), the cgroup.
#pragma once

#include <sys/types.h>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "base/types.h"

namespace rankstacks::target {

struct TargetRights {
  uid_t real_uid = 0, effective_uid = 0, saved_uid = 0;
  gid_t real_gid = 0, effective_gid = 0, saved_gid = 0;
  std::vector<gid_t> groups;                                 // ascending
  std::uint64_t permitted = 0, effective = 0, bounding = 0;  // capabilities, as bits
  FileDescriptor user_namespace;                             // open where it is not the tool's own

  bool are_the_same(const TargetRights& other) const;
};

// From the text of /proc/PID/status; std::nullopt if a line is missing or is not a list of numbers.
std::optional<TargetRights> parse_rights(std::string_view status);

// Errors: kGone; kPermission: its user namespace cannot be opened.
Result<TargetRights> rights_of(Pid pid);

// Applies to this process, which must have one thread. If something cannot be given up, that is an error (kPermission),
// and the process must not go on. A process without any capability keeps its own ids: it can trace only processes that
// have the same.
Result<void> take_on(const TargetRights& rights);

}  // namespace rankstacks::target
