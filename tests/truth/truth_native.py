"""One native fixture: the reports of the live process and of its core are compared with the chains that the program itself states, and with
gdb.

    truth_native.py FIXTURE [ARGUMENT...]     FIXTURE: a program of fixtures/ in the build directory
"""
import os
import re
import sys

import debugger
from processes import Fixture, check, json_report, main, task_states
from truth_python import only_rank

# Fixtures for which gdb is not the reference, and why. The chain that the program states holds nevertheless.
GDB_IS_WRONG = {
    "chain_no_unwind_tables": "gdb has no unwind information and guesses from the prologue",
    "jit": "gdb finds no unwind information in anonymous memory and stops",
    "context": "gdb runs past the end of the made stack",
    "context_O0": "gdb runs past the end of the made stack",
    "no_frame_pointer": "gdb guesses from the prologue",
    "returns_at_once": "gdb guesses from the prologue",
    "replaced_library": "gdb does not read a deleted library's unwind information",
    "deep": "the report leaves out the middle of so deep a stack",
}
# Modules whose frames may precede the innermost function of a chain: those that do the blocking.
SYSTEM = re.compile(r"(^|/)(libc[.-]|ld-linux|libpthread|\[vdso\]|linux-vdso)")


def plain(function):
    """A function's name as the chain has it: without version and clone suffix and, for C, without anything else."""
    if function is None:
        return None
    return re.sub(r" ?\[clone [^]]*\]|@.*$|\.(cold|part|isra|constprop|lto_priv)(\.\d+)*", "", function)


def matches(names, chain):
    """The index in `names` at which `chain` begins and where it ends, or None. "..." matches any frames, "?" matches one."""
    def ends(at, rest):
        while rest:
            if rest[0] == "...":
                return next((end for start in range(at, len(names) + 1) for end in [ends(start, rest[1:])] if end is not None), None)
            if at >= len(names) or (rest[0] != "?" and names[at] != rest[0]):
                return None
            at, rest = at + 1, rest[1:]
        return at
    for start in range(len(names)):
        end = ends(start, chain)
        if end is not None:
            return start, end
    return None


def check_chain(truth, expected, thread, where, static):
    keeps_inlined = "inlined" in truth
    frames = [frame for frame in thread["frames"] if keeps_inlined or not frame["inlined"]]
    names = [plain(frame["function"]) for frame in frames]
    listed = "\n".join("      %s" % (name,) for name in names[:30])
    found = matches(names, expected["chain"])
    check(found, "%s: tid %d has not the chain %s:\n%s" % (where, thread["tid"], expected["chain"], listed))
    if not static:
        for frame in frames[:found[0]]:
            on_its_way = (frame["function"] or "").endswith("@plt")   # a call of the system's libraries that has not arrived yet
            check(on_its_way or SYSTEM.search(frame["module"] or ""), "%s: tid %d: %s precedes the chain:\n%s" % (where, thread["tid"], frame["function"], listed))
    if expected["end"] != "*":
        check(thread["stack_end"] == expected["end"], "%s: tid %d ends with %s:\n%s" % (where, thread["tid"], thread["stack_end"], listed))
    if "frames_after_chain" in truth:
        check(len(names) - found[1] <= truth["frames_after_chain"], "%s: frames were invented below the chain:\n%s" % (where, listed))
    for name in truth.get("inlined", []):
        check([frame for frame in frames if frame["function"] == name and frame["inlined"]], "%s: %s is not shown as inlined" % (where, name))
    at = 0
    for part in truth.get("contains", []):
        while at < len(names) and part not in (names[at] or ""):
            at += 1
        check(at < len(names), "%s: no function with %r, in order:\n%s" % (where, part, listed))


def check_depth(truth, thread, where):
    depth = truth["depth"]
    count = sum(1 for frame in thread["frames"] if frame["function"] == depth["function"])
    omitted = thread.get("omitted_frames") or {"count": 0}
    check(count + omitted["count"] == depth["count"], "%s: %d frames and %d left out, of %d" % (where, count, omitted["count"], depth["count"]))


def compare(truth, rank, where, static=False):
    threads = {thread["tid"]: thread for thread in rank["threads"]}
    for expected in truth["threads"]:
        check(expected["tid"] in threads, "%s: thread %d is not in the report" % (where, expected["tid"]))
        thread = threads[expected["tid"]]
        check_chain(truth, expected, thread, where, static)
        if "depth" in truth:
            check_depth(truth, thread, where)
        name = expected["chain"][0]
        call = truth.get("syscalls", {}).get(name)
        if call and (where == "live" or thread["syscall"]):
            check(thread["syscall"] and thread["syscall"]["name"] == call, "%s: %s is in %r" % (where, name, thread["syscall"]))
        target = truth.get("fds", {}).get(name)
        if target and where == "live":
            check(target in (thread["syscall"]["fd_target"] or ""), "%s: %s waits for %r" % (where, name, thread["syscall"]))
        # Its main thread holds the only mutex that other threads wait for.
        owner = rank["pid"] if name == "in_mutex" else None
        check(thread.get("lock_owner") == owner, "%s: %s waits for a lock of %r, not of %r" % (where, name, thread.get("lock_owner"), owner))


def check_against_gdb(rank, stacks):
    for thread in rank["threads"]:
        check(thread["tid"] in stacks, "gdb knows no thread %d" % thread["tid"])
        difference = debugger.agree(thread, stacks[thread["tid"]])
        check(difference is None, "core: " + str(difference))


def test(directory, name, *arguments):
    fixtures = os.environ["RANKSTACKS_FIXTURES"]
    program = os.path.join(fixtures, name)
    debug = os.path.join(fixtures, "debug")
    static = "static" in name
    core = os.path.join(directory, "core")
    searches = ["--search", debug] if name == "chain_build_id" else []
    files = [os.path.join(fixtures, argument) if argument.endswith(".so") else argument for argument in arguments]
    with Fixture([program] + files) as fixture:
        truth = fixture.ready
        rank = only_rank(json_report("attach", "--pids", fixture.pid), fixture.pid)
        check(rank["status"] == "complete", "the rank is %s: %s" % (rank["status"], rank["problems"]))
        if name == "replaced_library" and os.geteuid() != 0:
            # Only root may open /proc/PID/map_files; a library that was loaded into memory has the names of exported functions only.
            for thread in truth["threads"]:
                thread["chain"] = ["?" if function == "inside_library" else function for function in thread["chain"]]
        alive = {tid for tid, state in task_states(fixture.pid).items()}
        check({thread["tid"] for thread in rank["threads"]} == alive, "the threads are %r" % alive)
        # A debug file outside of the system's directory is found only for cores, by --search: live, its frames have no names.
        unnamed = {"threads": [dict(thread, chain=["?"] * len(thread["chain"])) for thread in truth["threads"]]}
        compare(unnamed if searches else truth, rank, "live", static)
        fixture.check_unharmed()
        stacks = debugger.take_core(fixture, core, debug_directory=debug)
        fixture.check_unharmed()
        # While the process is alive: a deleted library exists only there.
        dead = json_report("core", core, *searches) if name != "replaced_library" else None
    if dead is None:
        return
    dead_rank = only_rank(dead, truth["pid"])
    check(dead_rank["status"] == "complete", "the core is %s: %s" % (dead_rank["status"], dead_rank["problems"]))
    if truth.get("runs"):
        compare(truth, dead_rank, "core", static)
        check_against_gdb(dead_rank, stacks)
        return
    compare(truth, dead_rank, "core", static)
    if name not in GDB_IS_WRONG:
        check_against_gdb(dead_rank, stacks)


if __name__ == "__main__":
    sys.exit(main(test, "native", sys.argv[1:]))
