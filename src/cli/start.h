// What the process needs before anything else of it runs.
#pragma once

namespace rankstacks {

// A descriptor 0, 1 or 2 that the caller has closed would be given to the next file that is opened, and the report be written into that. Something stands in its
// place, which cannot be written to: writing fails as to a closed one.
void hold_standard_descriptors();

// As many open files as may be: the more, the more cores are opened in parallel.
void raise_limit_of_files();

// A limit on the size of files ends a write with an error, which is said, instead of the process (setrlimit(2), RLIMIT_FSIZE).
void outlive_limit_of_file_size();

}  // namespace rankstacks
