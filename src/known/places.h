// Python functions that the analysis asks for by their purpose, and the files that contain them.
#pragma once

#include <span>
#include <string_view>

#include "known/rules.h"

namespace rankstacks::known {

enum class Place {
  // Of the standard library
  kWait,       // its functions that wait: for a lock, an item, a message, a descriptor
  kLock,       // of these, those that wait for another thread or task of the same process
  kUnlock,     // gives a lock back
  kTask,       // waits for the end of threads or tasks that its own process, or its pool of workers, runs
  kQueue,      // queue.Queue
  kQueueGet,   // of kQueue's functions: waits for an item
  kQueuePut,   // of kQueue's functions: waits for room
  kQueueJoin,  // of kQueue's functions: waits until all items are done
  kThreading,  // threads, and the objects with which they wait for each other
  // Of kThreading's functions: waits for a condition; if another such function has called it: for an event.
  kThreadingWait,
  kThreadingBarrier,  // of kThreading's functions: waits at a barrier
  kThreadingAcquire,  // of kThreading's functions: waits for a semaphore
  kThreadingJoin,     // of kThreading's functions: waits for a thread's end
  kPool,              // multiprocessing.Pool
  kFutures,           // concurrent.futures
  kChildOutput,       // reads what a child process writes, until all that have that output open have closed it
  kImport,            // the import of modules
  kImportWait,        // of kImport's functions: waits until another thread has imported the module
  kProcessQueue,      // between processes
  kProcessQueueWait,  // of kProcessQueue's functions: waits for an item, or for room
  kProcessPipe,
  kProcessLock,
  kEventLoop,     // asyncio's loop
  kLoopChild,     // a thread in which that waits for a child
  kServerLoop,    // a loop that waits for the next event, request or task
  kLoopWait,      // the function in which such a loop waits
  kThreadStart,   // at the root of each Python thread and worker process
  kThreadEntry,   // starts a thread or its task: never the purpose of the thread
  kProcessStart,  // the outermost function of a forked worker: the frames outside of it are its parent's stack
  kPoolWorker,    // the loop of a pool's worker process, and the functions that run the tasks in it
  kPoolLoop,      // of kPoolWorker's functions: the loop; it runs a task only if there are frames inside of it
  kPoolTask,      // runs a task in a pool's thread
  kNoWork,        // the innermost place of a child process that no process waits for
  // Of PyTorch
  kOperation,    // the functions that a collective or message consists of
  kC10d,         // the functions whose arguments name the group, source and destination
  kRemoteCalls,  // RPC
  kRemoteCall,   // runs a call that another process has made to this one
  kLoaderLoop,   // the loop of a data-loader worker
  kLoaderWork,   // in a data-loader worker: fetches or collates
};
inline constexpr std::size_t kPlaces = static_cast<std::size_t>(Place::kLoaderWork) + 1;

// A function named `what` (empty: any) in a file whose name ends with `file`, or contains it.
struct PlaceRule {
  Place place;
  std::string_view what;
  FileMatch match;
  std::string_view file;
  std::string_view source;
};

std::span<const PlaceRule> built_in_places();

// Whether a Python function is such a place: by its name (co_name) and its file (co_filename), as frames have them.
bool is_place(Place place, std::string_view function, std::string_view file);
// Whether any rule of this place applies to this file.
bool is_file_of(Place place, std::string_view file);

}  // namespace rankstacks::known
