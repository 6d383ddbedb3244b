# What the tool is built with. All that is missing is named in one message, with the packages that bring it.

include(CheckCSourceCompiles)
include(CheckIncludeFileCXX)

set(missing_dependencies "")
# dependency: what it is, with the oldest version that works. The others: names of packages.
function(rankstacks_is_missing dependency debian fedora)
  string(APPEND missing_dependencies "  ${dependency}\n      Debian, Ubuntu: ${debian}      Fedora: ${fedora}\n")
  set(missing_dependencies "${missing_dependencies}" PARENT_SCOPE)
endfunction()

find_package(Threads REQUIRED)
find_package(fmt QUIET)
if(NOT fmt_FOUND)
  rankstacks_is_missing("fmt" libfmt-dev fmt-devel)
endif()
find_package(nlohmann_json 3.11 QUIET)
if(NOT nlohmann_json_FOUND)
  rankstacks_is_missing("nlohmann/json 3.11 or newer" nlohmann-json3-dev json-devel)
endif()
find_package(CLI11 QUIET)
if(NOT CLI11_FOUND)
  rankstacks_is_missing("CLI11" libcli11-dev cli11-devel)
endif()
check_include_file_cxx(tl/expected.hpp RANKSTACKS_HAVE_EXPECTED)
if(NOT RANKSTACKS_HAVE_EXPECTED)
  unset(RANKSTACKS_HAVE_EXPECTED CACHE)   # it may be installed by the next time
  rankstacks_is_missing("tl::expected (tl/expected.hpp)" libexpected-dev expected-devel)
endif()

find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  # variable, pkg-config's module, packages
  foreach(library "DW;libdw;libdw-dev;elfutils-devel" "ELF;libelf;libelf-dev;elfutils-libelf-devel" "UNWIND;libunwind-generic;libunwind-dev;libunwind-devel"
                  "ZSTD;libzstd;libzstd-dev;libzstd-devel" "LZ4;liblz4;liblz4-dev;lz4-devel" "LZMA;liblzma;liblzma-dev;xz-devel" "ZLIB;zlib;zlib1g-dev;zlib-ng-compat-devel")
    list(GET library 0 variable)
    list(GET library 1 module)
    pkg_check_modules(RANKSTACKS_${variable} QUIET ${module})
    if(NOT RANKSTACKS_${variable}_FOUND)
      list(GET library 2 debian)
      list(GET library 3 fedora)
      rankstacks_is_missing("${module} (pkg-config)" ${debian} ${fedora})
    endif()
  endforeach()
else()
  rankstacks_is_missing("pkg-config, by which libdw, libelf, libunwind, zstd, lz4, lzma and zlib are found" pkg-config pkgconf-pkg-config)
endif()

# Tests need one more.
if(RANKSTACKS_TESTS)
  find_package(Catch2 2 QUIET)   # version 3 has other headers
  if(NOT Catch2_FOUND)
    rankstacks_is_missing("Catch2 of version 2, for the tests (without them: -DRANKSTACKS_TESTS=OFF)" "catch2 (Ubuntu 24.04 has version 3 alone)" catch2-devel)
  endif()
endif()

if(missing_dependencies)
  message(FATAL_ERROR "rankstacks cannot be built, because these are missing:\n${missing_dependencies}"
                      "On Debian and Ubuntu `scripts/setup` installs them.")
endif()

pkg_check_modules(DW REQUIRED IMPORTED_TARGET libdw libelf)
pkg_check_modules(UNWIND REQUIRED IMPORTED_TARGET libunwind-generic)
pkg_check_modules(COMPRESSION REQUIRED IMPORTED_TARGET libzstd liblz4 liblzma zlib)
set(RANKSTACKS_FMT fmt::fmt)
if(RANKSTACKS_STATIC_LIBS)
  rankstacks_complete_static_libraries()
endif()

# libunwind's reader of .eh_frame_hdr is exported but not in its headers: stop here, with a reason, where a build of it lacks the symbol.
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::UNWIND)
check_c_source_compiles("int _Ux86_64_dwarf_search_unwind_table(void); int main(void) { return _Ux86_64_dwarf_search_unwind_table(); }"
                        RANKSTACKS_HAVE_SEARCH_UNWIND_TABLE)
unset(CMAKE_REQUIRED_LIBRARIES)
if(NOT RANKSTACKS_HAVE_SEARCH_UNWIND_TABLE)
  message(FATAL_ERROR "this libunwind does not export _Ux86_64_dwarf_search_unwind_table; Debian's libunwind-dev 1.6.2 does")
endif()
