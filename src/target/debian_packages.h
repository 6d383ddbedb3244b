// Which package of dpkg's a file is of: by the lists of files in /var/lib/dpkg/info.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace rankstacks::target {

// By path; files that no installed package has are left out. `root`: of another machine's files, whose dpkg is asked
// first; "": none. What was asked for is remembered, as all ranks have the same files.
std::map<std::string, std::string> debian_packages_of(const std::vector<std::string>& paths, const std::string& root);

}  // namespace rankstacks::target
