// The members of an archive of captures as files of a private directory, which goes with this object.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"

namespace rankstacks::cli {

class UnpackedArchive {
 public:
  struct Member {
    std::string path;   // where it was unpacked to
    std::string shown;  // "hang.tar.zst/rank-0.core"
  };

  // The archive is untrusted: small_core/archive.h has its bounds. Errors: it cannot be read, is damaged, or holds
  // nothing; there is no room in the temporary directory.
  static Result<UnpackedArchive> open(const std::string& path, const Deadline& deadline);
  ~UnpackedArchive();
  UnpackedArchive(UnpackedArchive&& other) noexcept;
  UnpackedArchive& operator=(UnpackedArchive&&) = delete;

  const std::vector<Member>& members() const { return members_; }

 private:
  UnpackedArchive() = default;
  std::string directory_;
  std::vector<Member> members_;
};

}  // namespace rankstacks::cli
