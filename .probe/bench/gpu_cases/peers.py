"""Times other tools on a job that has just been examined. They take one process each, so they are called for one rank after the other."""
import shutil
import subprocess
import time

DEADLINE = 60  # for one rank

COMMANDS = {
    "cuda-gdb": lambda pid: ["cuda-gdb", "-batch", "-nx", "-p", str(pid), "-ex", "thread apply all backtrace", "-ex", "info cuda kernels", "-ex", "detach"],
    "py-spy": lambda pid: ["py-spy", "dump", "--native", "--pid", str(pid)],
}


def available():
    return [name for name in COMMANDS if shutil.which(name)]


def seconds(name, pids):
    """For all ranks together; None if the tool failed for one, or did not end."""
    begin = time.monotonic()
    for pid in pids:
        try:
            done = subprocess.run(COMMANDS[name](pid), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  timeout=DEADLINE, check=False)
        except subprocess.TimeoutExpired:
            return None
        if done.returncode != 0:
            return None
    return time.monotonic() - begin


def show_times(times, reports):
    """`times`: by case, then by tool; `reports`: by case, then by kind."""
    names = [name for name in COMMANDS if any(name in row for row in times.values())]
    print("\nSeconds for all ranks of a job; the other tools take one rank after the other (-: failed, or not done in %d s for a rank)\n" % DEADLINE)
    print("| case | stacks | --gpu | %s |\n|---|--:|--:|%s" % (" | ".join(names), "--:|" * len(names)))
    for case, row in times.items():
        own = [reports[case].get(kind) for kind in ("stacks", "--gpu")]
        print("| %s | %s |" % (case, " | ".join("-" if value is None else "%.1f" % value for value in own + [row.get(name) for name in names])))
