// Names of users by /etc/passwd alone: the packaged tool is static, and getpwuid() would load the machine's libraries.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rankstacks::capture {

class UserNames {
 public:
  explicit UserNames(std::string_view passwd) : passwd_(passwd) {}
  static UserNames of_this_machine();

  // The number itself for a user that the file does not have.
  std::string name_of(long uid) const;
  // A name of the file, or a number.
  std::optional<long> uid_of(std::string_view name) const;

 private:
  std::string passwd_;
};

}  // namespace rankstacks::capture
