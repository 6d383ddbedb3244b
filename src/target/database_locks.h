// Who holds the lock of an SQLite database that a thread waits for. Such a thread is not in a lock call: it tries, and
// sleeps between two attempts. Which lock it tries to get is unknown. Known are the databases that its process has
// open, and those of them that another process has locked, by fcntl(2) locks on certain bytes:
//
//     database   0x40000000              PENDING    exclusive: somebody waits for the last reader to write
//                0x40000001              RESERVED   exclusive: somebody will write, or has begun to (BEGIN IMMEDIATE)
//                0x40000002 0x400001ff   SHARED     exclusive: somebody writes into the file; shared: reads
//     -shm       (of a database in WAL mode: the file with "-shm" appended to its name)
//                120 WRITE               exclusive: somebody writes
//                121 CKPT                exclusive: somebody moves the log into the database
//                122 RECOVER             exclusive: somebody builds the index anew
//                123-127 READ(0..4)      shared: reads
//                128 DMS                 shared: has it open
//
// Sources: sqlite src/os.h (PENDING_BYTE, SHARED_SIZE), src/os_unix.c (unixLock, UNIX_SHM_BASE, UNIX_SHM_DMS),
// src/wal.c (WAL_WRITE_LOCK to WAL_READ_LOCK); sqlite.org/lockingv3.html, sqlite.org/walformat.html section 2.3.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "target/file_locks.h"

namespace rankstacks::target {

// A named file that a process has open.
struct OpenFile {
  std::string path;  // as the descriptor's link states it
  std::uint64_t inode = 0;
  // As in FileLock::file, if a lock held through the descriptor states it; "": only the inode is known.
  std::string file;
  bool operator==(const OpenFile&) const = default;
};

struct OpenDatabase {
  OpenFile database;
  std::optional<OpenFile> shared_memory;  // in WAL mode
};

// The open files that may be databases, with their shared memory: all files except those that SQLite keeps next to a
// database, each once.
std::vector<OpenDatabase> databases_among(const std::vector<OpenFile>& files);

// Locks on the awaited database that other processes hold exclusively, each with the last path component of the locked
// file.
struct DatabaseLocks {
  std::vector<std::pair<std::string, FileLock>> held;  // empty: unknown
  std::string path;                                    // of the database; "": one process has locked several of them
};

// `own` is the waiting process, `open` are its open files. If several databases are locked, the locks are returned only
// if one process holds all of them. Empty if the waiting process itself has another database locked: it may then wait
// for the readers of that one, or for another connection of its own.
DatabaseLocks awaited_database_locks(const std::vector<FileLock>& all, Pid own, const std::vector<OpenDatabase>& open);

// From the links in /proc/PID/fd, and from fdinfo. std::nullopt if the process has more than 4,096 named files open, or
// if the kernel (before 5.14) does not report their inodes.
std::optional<std::vector<OpenFile>> open_files(Pid pid);

}  // namespace rankstacks::target
