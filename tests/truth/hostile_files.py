"""Files that an ordinary process maps in order to delay the tool: many headers over the same bytes. The tool ends, and the other ranks are
complete."""
import os
import struct
import subprocess
import time

import cases
from command_line import native
from processes import check, json_report
from truth_native import compare
from truth_python import only_rank

LIMIT = 60               # seconds; one of these files alone once took more than 100


def elf(segments=b"", sections=b"", body=b""):
    """An ELF file: header, program headers, body, section headers. Section 0 has their number."""
    count = len(segments) // 56
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, 64 + len(segments) + len(body) if sections else 0, 0, 64, 56, min(count, 0xffff),
                         64 if sections else 0, 0, 0)
    first = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, len(sections) // 64 + 1, 0, count, 0, 0) if sections else b""
    return header + segments + body + first + sections


def section(kind, offset=0, size=0, entry=0):
    return struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, offset, size, 0, 0, 0, entry)


def segment(kind, offset, address, size, flags=5):
    return struct.pack("<IIQQQQQQ", kind, flags, offset, address, address, size, size, 1)


HOSTILE = {
    "symbol-tables": elf(segment(1, 0, 0, 4096), section(2, entry=24) * 300000),
    "notes": elf(segment(1, 0, 0, 4096), section(7, 120, 8 << 20) * 30000, bytes(8 << 20)),
    "segments": elf(b"".join(segment((1, 4)[n % 2], 0, 4096 * n, 4096) for n in range(60000)), b"", bytes(4096)),
}

MAPPER = r"""
import ctypes, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for path in sys.argv[1:]:
    descriptor = os.open(path, os.O_RDONLY)
    for times in range(50):                          # the same file again and again
        if libc.mmap(None, 4096, 5, 2, descriptor, 0) in (None, 2 ** 64 - 1):
            sys.exit(os.strerror(ctypes.get_errno()))
print("mapped", flush=True)
os.read(0, 1)
"""


def case_live(directory):
    paths = []
    for name, contents in HOSTILE.items():
        paths.append(os.path.join(directory, name))
        with open(paths[-1], "wb") as file:
            file.write(contents)
    mapper = subprocess.Popen(["/usr/bin/python3", "-c", MAPPER] + paths, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        check(mapper.stdout.readline() == b"mapped\n", "the files cannot be mapped executable")
        with native("threads") as other:
            start = time.monotonic()
            report = json_report("attach", "--timeout", 30, "--pids", "%d,%d" % (mapper.pid, other.pid))
            took = time.monotonic() - start
            check(took < LIMIT, "it took %.1f s" % took)
            compare(other.ready, only_rank(report, other.pid), "together with hostile files")
            check(only_rank(report, mapper.pid)["status"] == "complete", "the hostile rank: %r" % only_rank(report, mapper.pid)["problems"])
    finally:
        mapper.kill()
        mapper.wait()


if __name__ == "__main__":
    cases.run(globals(), "hostile")
