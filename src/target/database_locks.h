// Who holds the lock of an SQLite database that a thread waits for. Such a thread is in no call for a lock: it tries, and sleeps between two tries. What it tries for is
// not known, but which databases its process has open, and which of these somebody else has locked: locks of fcntl(2) on certain bytes.
//
//     database   0x40000000              PENDING    exclusive: somebody waits for the last reader to write
//                0x40000001              RESERVED   exclusive: somebody will write, or has begun to (BEGIN IMMEDIATE)
//                0x40000002 0x400001ff   SHARED     exclusive: somebody writes into the file; shared: reads
//     -shm       120 WRITE   121 CKPT    122 RECOVER    123-127 READ(0..4)        of a database in WAL mode: the file with "-shm" behind its name
//                                        exclusive: somebody writes, moves the log into the database, builds the index anew; READ shared: reads
//                128 DMS                 shared: has it open
//
// Sources: sqlite src/os.h (PENDING_BYTE, SHARED_SIZE), src/os_unix.c (unixLock, UNIX_SHM_BASE, UNIX_SHM_DMS), src/wal.c (WAL_WRITE_LOCK to WAL_READ_LOCK);
// sqlite.org/lockingv3.html, sqlite.org/walformat.html section 2.3.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "target/file_locks.h"

namespace rankstacks {

// A file with a name that a process has open.
struct OpenFile {
  std::string path;           // as its descriptor's link has it
  std::uint64_t inode = 0;
  std::string file;           // as FileLock::file, where a lock that is held through the descriptor tells; "": the inode alone is known
  bool operator==(const OpenFile&) const = default;
};

struct OpenDatabase {
  OpenFile database;
  std::optional<OpenFile> shared_memory;   // in WAL mode
};

// What may be databases, with their shared memory: all files but those that SQLite has beside a database, each once.
std::vector<OpenDatabase> databases_among(const std::vector<OpenFile>& files);

// Locks of the awaited database that other processes hold exclusively, each with the last name of the file that it is on.
struct DatabaseLocks {
  std::vector<std::pair<std::string, FileLock>> held;   // empty: it cannot be told
  std::string path;                                     // of the database; "": one process has several of them locked
};

// `own` is the waiting process, `open` what it has open. Where several databases are locked, only if one process has locked all of them. Nothing where its own
// process has another one locked: what it waits for may be that one's readers, or its own other connection.
DatabaseLocks awaited_database_locks(const std::vector<FileLock>& all, Pid own, const std::vector<OpenDatabase>& open);

// By the links of /proc/PID/fd and fdinfo. Nothing: it has more than 4,096 files with names open, or the kernel (before 5.14) does not tell their inodes.
std::optional<std::vector<OpenFile>> open_files(Pid pid);

}  // namespace rankstacks
