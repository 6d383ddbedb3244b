// One process of a snapshot as `py-spy dump` (0.4) prints it, for programs that read py-spy's output.
//
//     Process 4711: python3 train.py                [{"pid": 4711, "thread_id": 139..., "thread_name": "MainThread",
//     Python v3.11.2 (/usr/bin/python3.11)             "os_thread_id": 4711, "active": false, "owns_gil": false,
//                                                      "frames": [{"name": "step", "filename": "/x/train.py",
//     Thread 4711 (idle): "MainThread"                   "module": null, "short_filename": "train.py", "line": 12,
//         step (train.py:12)                             "locals": null, "is_entry": false, ...}],
//         <module> (train.py:30)                       "process_info": null}]
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/snapshot.h"

namespace rankstacks::report {

struct PySpyForm {
  bool native = false;     // native frames as well
  std::size_t locals = 0;  // the longest repr of a local variable, in characters; 0: none is shown
  // What the text, and short_filename, show instead of a file's path. Empty: the path itself.
  std::function<std::string(const std::string&)> short_name = {};
};

// The threads that have a state of the interpreter, as with py-spy; of a process without Python, all threads with
// their native frames. `parent`: heads the output of a process that is shown with its parent.
std::string py_spy_text(const JobSnapshot& job, const RankSnapshot& rank, const PySpyForm& form,
                        const RankSnapshot* parent = nullptr);
std::string py_spy_json(const JobSnapshot& job, const RankSnapshot& rank, const PySpyForm& form);

// The paths that short_name will be asked for.
std::vector<std::string> files_of(const JobSnapshot& job, const RankSnapshot& rank, const PySpyForm& form);

}  // namespace rankstacks::report
