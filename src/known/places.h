// Python functions that decisions ask for by what they are, and the files that they are in.
#pragma once

#include <span>
#include <string_view>

#include "known/rules.h"

namespace rankstacks {

enum class Place {
  // Of the standard library
  kWait,              // its ways to wait: for a lock, an item, a message, a descriptor
  kLock,              // of these, for another thread or task of the own process
  kTask,              // waits for the end of threads or tasks that its own process, or its pool of workers, runs
  kQueue,             // queue.Queue
  kQueueGet,          // of these functions: waits for an item
  kQueuePut,          // waits for room
  kQueueJoin,         // waits until all items are done
  kThreading,         // threads, and what they wait for each other with
  kThreadingWait,     // of these functions: waits for a condition; called by another such one: for an event
  kThreadingBarrier,  // waits at a barrier
  kThreadingAcquire,  // waits for a semaphore
  kThreadingJoin,     // waits for a thread's end
  kPool,              // multiprocessing.Pool
  kFutures,           // concurrent.futures
  kImport,            // the import of modules
  kImportWait,        // of these functions: waits until another thread has imported the module
  kProcessQueue,      // between processes
  kProcessQueueWait,  // of these functions: waits for an item, or for room
  kProcessPipe,
  kProcessLock,
  kEventLoop,         // asyncio's loop
  kServerLoop,        // a loop that waits for the next event, request or task
  kLoopWait,          // what such a loop waits in
  kThreadStart,       // at the root of each Python thread and worker process
  kThreadEntry,       // starts a thread or its task: never what the thread is there for
  kProcessStart,      // the outermost function of a forked worker: what stands outside of it is its parent's stack
  kPoolWorker,        // the loop of a pool's worker process, and what runs the tasks in it
  kPoolLoop,          // of these functions: the loop, in which there is a task only where something stands inside of it
  kPoolTask,          // runs a task in a pool's thread
  kNoWork,            // the innermost place of a child process that nobody waits for
  // Of PyTorch
  kOperation,         // what a collective or message consists of
  kC10d,              // the functions whose arguments name the group, source and destination
  kRemoteCalls,       // RPC
  kRemoteCall,        // a call that another process has made of this one
  kLoaderLoop,        // a data-loader worker's
  kLoaderWork,        // of such a worker: fetches or collates
};
inline constexpr std::size_t kPlaces = static_cast<std::size_t>(Place::kLoaderWork) + 1;

// A function named `what` (empty: any) of a file that ends with `file`, or contains it.
struct PlaceRule {
  Place place;
  std::string_view what;
  FileMatch match;
  std::string_view file;
  std::string_view source;
};

std::span<const PlaceRule> built_in_places();

// Whether a Python function is one of these: by its name (co_name) and its file (co_filename), as frames have them.
bool is_place(Place place, std::string_view function, std::string_view file);
// Whether any rule of this place is of this file.
bool is_file_of(Place place, std::string_view file);

}  // namespace rankstacks
