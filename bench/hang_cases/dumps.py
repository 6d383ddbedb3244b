"""Dumps the ranks of a job by another tool, for `bench/hangs --dumps`: the tool's own verdict from what the other one has printed."""
import glob
import os
import re
import shutil
import subprocess

from hang_cases import starting

COMMANDS = {"py-spy": ["py-spy", "dump", "--pid"],
            "py-spy-native": ["py-spy", "dump", "--native", "--pid"],
            "pystack": ["pystack", "remote", "--no-block"],
            "pystack-native": ["pystack", "remote", "--native-all"],
            "gdb": ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-ex", "thread apply all bt", "-p"],
            "eu-stack": ["eu-stack", "-m", "-p"]}
DEADLINE = 120


def program_of(name, peers):
    """The path of a tool: from the directory --peers, else from PATH."""
    path = shutil.which(COMMANDS[name][0], path=peers) if peers else None
    path = path or shutil.which(COMMANDS[name][0])
    if path is None:
        raise starting.Missing("%s is not installed" % COMMANDS[name][0])
    return path


def write_dumps(name, peers, ranks, directory, again):
    """The files, by rank; a rank that the tool cannot dump has none. `again`: how often the same tool has dumped them before."""
    program, files = program_of(name, peers), {}
    for rank, pid in sorted(ranks.items()):
        path = os.path.join(directory, file_name(name, rank, again))
        with open(path, "wb") as out:
            try:
                subprocess.run([program, *COMMANDS[name][1:], str(pid)], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL, timeout=DEADLINE, check=False)
            except subprocess.TimeoutExpired:
                pass
        if os.path.getsize(path) > 0:
            files[rank] = path
    return files


def file_name(name, rank, again):
    return "%s.rank%d%s.txt" % (name, rank, ".%d" % (again + 1) if again else "")


def kept_files(directory, name):
    """[{rank: file}], of one time after the other, of what an earlier run has left in the directory."""
    times = {}
    for path in glob.glob(os.path.join(glob.escape(directory), name + ".rank*.txt")):
        rank, again = re.fullmatch(r".*\.rank(\d+)(?:\.(\d+))?\.txt", path).groups()
        if os.path.getsize(path) > 0:
            times.setdefault(int(again or 1), {})[int(rank)] = path
    return [dict(sorted(times[again].items())) for again in sorted(times)]
