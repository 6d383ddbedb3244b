// A command that the tool has started: an engine on this machine, or the tool's own capture on a node.
#pragma once

#include <sys/types.h>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/result.h"

namespace rankstacks::nodes {

// A child in a session of its own, so that it has no terminal to ask a password at, and all of it can be ended by one
// signal to its process group. The destructor ends the group and reaps the child. The group also ends if the tool dies:
// its first process, a copy of the tool, does nothing but wait for that.
class Child {
 public:
  // `with_input`: its standard input is a pipe, otherwise /dev/null. kNotFound: there is no such command.
  static Result<Child> start(const std::vector<std::string>& command, bool with_input);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();

  // The pipes; closed ones are not open. Both outputs are non-blocking, and so is the input.
  FileDescriptor out, err, in;

  // Once it has ended: its exit status, or 128 and the signal that has ended it. Does not block, and does not reap it.
  std::optional<int> ended();
  void send(int signal) const;  // to its whole process group
  pid_t pid() const { return pid_; }

 private:
  Child() = default;
  pid_t pid_ = -1;  // -1: moved from
  std::optional<int> status_;
};

}  // namespace rankstacks::nodes
