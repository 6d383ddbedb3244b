// What the process sets up before anything else of it runs.
#pragma once

namespace rankstacks::cli {

// If the caller has closed descriptor 0, 1 or 2, the next file that is opened would get its number, and the report
// would be written into that file. This puts something in its place that cannot be written to: writing fails as to a
// closed descriptor.
void hold_standard_descriptors();

// Raises the limit on open files as far as possible: the more, the more cores are opened in parallel.
void raise_limit_of_files();

// Makes the kernel's table of this process's open files larger than it is likely to be needed. It grows when it is
// full, and while a process has several threads, each of them that opens a file waits then until all processors have
// left the kernel's read-side sections (expand_fdtable() in fs/file.c): 10 to 30 ms, while threads may be held. To be
// called before there is a second thread, and after raise_limit_of_files().
void make_room_for_files();

// Makes the C library ask the kernel for memory in steps of a mebibyte.
void take_memory_in_large_steps();

// A write beyond the limit on the size of files then fails with an error, which is reported, instead of ending the
// process (setrlimit(2), RLIMIT_FSIZE).
void outlive_limit_of_file_size();

}  // namespace rankstacks::cli
