"""Files of another user that change while the tool reads them. The library that decodes DWARF checks that strings end, and reads them again
later; if the bytes have changed meanwhile, it must not read beyond them, whoever changed them."""
import json
import os
import struct
import subprocess
import sys

import cases
from processes import Fixture, Skip, check, run_tool

OTHER_USER = 65534
LIBRARIES = 24
LOOKS = 24
SOURCE_NAME = "outer.c"

SOURCE = """#include <unistd.h>
int inner(int n) { char buffer[64]; buffer[0] = n; for (;;) pause(); return buffer[0]; }
int outer(int n) { return inner(n + 1) + n; }
"""

VICTIM = """import ctypes, json, os, sys, threading
for path in sys.argv[1:]:
    threading.Thread(target=ctypes.CDLL(path).outer, args=(1,), daemon=True).start()
print(json.dumps({"pid": os.getpid()}), flush=True)
sys.stdin.read()
"""

# Sets and clears the byte that ends each file, a thousand times a second.
CHANGER = """import json, mmap, os, sys, time
files = []
for path in sys.argv[1:]:
    with open(path, "r+b") as file:
        files.append(mmap.mmap(file.fileno(), 0))
print(json.dumps({"pid": os.getpid(), "runs": True}), flush=True)
while True:
    for byte in (65, 0):
        for file in files:
            file[-1] = byte
        time.sleep(0.0005)
"""


def end_with_the_directory(path):
    """Moves .debug_line_str to the end of the file, which then ends with a page, so that nothing is mapped behind it; the unit's directory
    becomes its last string."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    headers, = struct.unpack_from("<Q", data, 0x28)
    count, names_at = struct.unpack_from("<HH", data, 0x3c)
    names, = struct.unpack_from("<Q", data, headers + 64 * names_at + 24)
    places = {}
    for at in range(headers, headers + 64 * count, 64):
        name = names + struct.unpack_from("<I", data, at)[0]
        places[data[name:data.index(0, name)].decode()] = (at, *struct.unpack_from("<QQ", data, at + 24))
    header, offset, size = places[".debug_line_str"]
    texts = bytes(data[offset:offset + size])
    _, info, info_size = places[".debug_info"]
    # Its name and its directory, in this order.
    source, current = texts.index(SOURCE_NAME.encode() + b"\0"), texts.index(os.path.dirname(path).encode() + b"\0")
    unit = data.index(struct.pack("<II", source, current), info, info + info_size)
    struct.pack_into("<I", data, unit + 4, size)
    texts += b"/elsewhere\0"
    data += bytes(-(len(data) + len(texts)) % 4096)
    struct.pack_into("<QQ", data, header + 24, len(data), len(texts))
    with open(path, "wb") as file:
        file.write(data + texts)


def libraries(directory):
    os.chmod(directory, 0o755)
    paths = []
    with open(os.path.join(directory, SOURCE_NAME), "w", encoding="utf-8") as file:
        file.write(SOURCE)
    for i in range(LIBRARIES):
        paths.append(os.path.join(directory, "libouter%d.so" % i))
        subprocess.run(["gcc", "-gdwarf-5", "-O0", "-shared", "-fPIC", "-Wl,--build-id=none", "-o", paths[-1], SOURCE_NAME], check=True, cwd=directory)
    return paths


def threads_of(report):
    return [thread["frames"] for rank in report["ranks"] for thread in rank["threads"]]


def lines_of(report):
    return {(frame["function"], os.path.basename(frame["file"]), frame["line"]) for frames in threads_of(report) for frame in frames if frame["function"] in ("inner", "outer") and frame["file"]}


def case_strings_that_do_not_end(directory):
    if os.geteuid() != 0:
        raise Skip("files of another user need root")
    paths = libraries(directory)
    for path in paths:
        end_with_the_directory(path)
        os.chown(path, OTHER_USER, OTHER_USER)
    with Fixture([sys.executable, "-c", VICTIM, *paths]) as victim:
        _, out, err = run_tool("attach", "--samples", 1, "--format", "json", "--pids", victim.pid)
        wanted = {("inner", "outer.c", 2), ("outer", "outer.c", 3)}
        check(lines_of(json.loads(out)) == wanted, "while nothing changes: %r, %s" % (lines_of(json.loads(out)), err.decode()))
        with Fixture(["/usr/bin/python3", "-c", CHANGER, *paths], user=OTHER_USER):
            for look in range(LOOKS):
                status, out, err = run_tool("attach", "--samples", 1, "--format", "json", "--pids", victim.pid)
                check(status in (0, 1), "look %d: exit status %d: %s" % (look, status, err.decode(errors="replace")))
                check(lines_of(json.loads(out)) <= wanted, "look %d: %r" % (look, lines_of(json.loads(out))))


def case_another_users_unwind_tables(directory):
    """libdw, too, gets a copy of what it unwinds by: the stacks are the same."""
    if os.geteuid() != 0:
        raise Skip("files of another user need root")
    paths = libraries(directory)
    with Fixture([sys.executable, "-c", VICTIM, *paths]) as victim:
        stacks = []
        for user in (0, OTHER_USER):
            for path in paths:
                os.chown(path, user, user)
            _, out, _ = run_tool("attach", "--samples", 1, "--unwinder", "libdwfl", "--threads", "all", "--format", "json", "--pids", victim.pid)
            stacks.append(sorted(tuple(frame["function"] or "" for frame in frames) for frames in threads_of(json.loads(out))))
        check(stacks[0] == stacks[1], "%r differs from %r" % (stacks[1], stacks[0]))
        check(sum("outer" in stack for stack in stacks[1]) == LIBRARIES, "not all are unwound: %r" % stacks[1])


if __name__ == "__main__":
    cases.run(globals(), "changing")
