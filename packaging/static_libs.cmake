# RANKSTACKS_STATIC_LIBS: one executable that needs only glibc, in no version newer than 2.17. Included before libraries are searched for.

# Results that were found with another setting of the option must not be kept.
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
# Debian's libunwind.a is not position independent.
add_link_options(-no-pie)
set(CMAKE_REQUIRED_LINK_OPTIONS -no-pie)

# The libraries that the archives themselves need, which shared libraries name by themselves.
macro(rankstacks_complete_static_libraries)
  find_library(RANKSTACKS_BZ2 bz2 REQUIRED)
  find_library(RANKSTACKS_LZMA lzma REQUIRED)
  set_property(TARGET PkgConfig::DW APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${RANKSTACKS_BZ2} PkgConfig::COMPRESSION)
  set_property(TARGET PkgConfig::UNWIND APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${RANKSTACKS_LZMA})
  # Debian has no archive of fmt: packaging/fmt.cc is one. Whoever uses it is compiled as with the shared library, so
  # that ccache has the objects of the usual build.
  add_library(rankstacks_fmt STATIC packaging/fmt.cc)
  target_compile_definitions(rankstacks_fmt PUBLIC FMT_SHARED)
  set(RANKSTACKS_FMT rankstacks_fmt)
endmacro()

# Must be called before anything else is linked to `executable`.
function(rankstacks_make_portable executable)
  set(sources ${PROJECT_SOURCE_DIR}/packaging/old_glibc.c ${PROJECT_SOURCE_DIR}/packaging/no_debuginfod.c)
  target_sources(${executable} PRIVATE ${sources})
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "-Wall;-Wextra;-fvisibility=hidden")
  # libunwind.a defines functions of the same names as libgcc's unwinder. The tool's own exceptions must go through libgcc's: libgcc
  # comes first, and its one object file that has all of them is pulled in by a symbol of that file.
  target_link_options(${executable} PRIVATE LINKER:-u,_Unwind_Resume)
  target_link_libraries(${executable} PRIVATE gcc_eh)
  target_link_options(${executable} PRIVATE -static-libgcc -static-libstdc++ LINKER:-z,relro,-z,now,--strip-debug LINKER:-Map=${CMAKE_BINARY_DIR}/${executable}.map)
  # The libraries in which an older glibc has its threads and the loader's interface: packaging/old_glibc.c.
  target_link_options(${executable} PRIVATE LINKER:--push-state,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 LINKER:--pop-state)
endfunction()
