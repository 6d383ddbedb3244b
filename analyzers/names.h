// What a frame's names say: which module is the C library, which the interpreter, which function starts a thread, and
// what a function is called without its arguments.
#pragma once

#include <string>
#include <string_view>

#include "known/known_programs.h"
#include "known/places.h"
#include "model/snapshot.h"

namespace rankstacks::analyzers {

// "/usr/lib/x86_64-linux-gnu/libc.so.6" -> "libc.so.6". Drops " (deleted)".
std::string_view base_name(std::string_view path);

// glibc and its parts before 2.34, musl, the dynamic loader, the vdso.
bool is_c_library(std::string_view module);
bool is_cpp_library(std::string_view module);
// libpython3.11.so.1.0, python3.11, python3-dbg: modules whose functions are CPython's own.
bool is_interpreter(std::string_view module);
// Modules whose inner frames say nothing about where a program is: the C and C++ libraries, the CUDA driver, OpenMP
// runtimes.
bool is_opaque(std::string_view module);

// Whether this is a Python frame of one of the functions of `place` (known/places.h).
bool is_place(const Frame& frame, known::Place place);

// Frames that start every thread or program (start_thread, clone3, __libc_start_call_main, _start, libstdc++'s thread
// routine). In a stripped libc they have no name; the caller then has to treat any outermost run of C library frames
// as such.
bool is_thread_start(const Frame& frame);

// CPython's call machinery, which leads from one piece of code to the next and is never the place where a program is.
bool is_call_plumbing(std::string_view function);

// Removes clone suffixes (.cold, .part.0, .constprop.0, .isra.0, .lto_priv.0, [clone ...]) and symbol versions
// (@@GLIBC_2.3.2).
std::string without_suffixes(std::string_view function);

// The public name of one of libc's internal aliases: __GI___poll, ___pthread_cond_wait, __libc_read -> poll,
// pthread_cond_wait, read.
std::string public_libc_name(std::string_view function);

// A function of MPI's API, including its profiling form: MPI_Allreduce, PMPI_Recv.
bool is_mpi_function(std::string_view function);

// For display, without parameter list, template arguments and return type.
// "void c10d::Reducer::f<int>(std::vector<int> const&) const" -> "c10d::Reducer::f<...>(...)"
std::string short_function(std::string_view function);

}  // namespace rankstacks::analyzers
