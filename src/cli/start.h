// What the process sets up before anything else of it runs.
#pragma once

namespace rankstacks::cli {

// If the caller has closed descriptor 0, 1 or 2, the next file that is opened would get its number, and the report
// would be written into that file. This puts something in its place that cannot be written to: writing fails as to a
// closed descriptor.
void hold_standard_descriptors();

// Raises the limit on open files as far as possible: the more, the more cores are opened in parallel.
void raise_limit_of_files();

// Makes the C library ask the kernel for memory in steps of a mebibyte.
void take_memory_in_large_steps();

// A write beyond the limit on the size of files then fails with an error, which is reported, instead of ending the
// process (setrlimit(2), RLIMIT_FSIZE).
void outlive_limit_of_file_size();

}  // namespace rankstacks::cli
