"""Which process has locked the SQLite database that a thread waits for: real databases, in both modes, of Python's sqlite3 module."""
import json
import os
import sqlite3
import subprocess

import cases
from command_line import text_of
from interpreters import find
from odd_targets import Reachable, as_nobody
from other_ends import Processes, call_of, check_ends, check_nobody, rank, report_in_call, wait_for_call
from processes import Skip, check, json_report, run_tool, tool

OPEN = "import sqlite3\nc = sqlite3.connect(sys.argv[1], timeout=100000, isolation_level=None)\n"
WRITES = OPEN + "c.execute('BEGIN IMMEDIATE')\n"
STAYS = "os.read(os.pipe()[0], 1)"
ROLLBACK, WAL = "delete", "wal"


def database(directory, mode, name="trials.db"):
    path = os.path.join(directory, name)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=" + mode)
    connection.execute("CREATE TABLE trials (number INTEGER)")
    connection.commit()
    connection.close()
    return path


def check_holder(waiter, holder, path, *others):
    """The holder is named as a process outside of the job, and as rank 1 of it."""
    ends = call_of(report_in_call(waiter, *others), waiter)
    check([(end["pid"], end["kind"]) for end in ends.get("other_ends", [])] == [(holder, "database")] and ends.get("database") == path, "%r" % ends)
    check("python3" in ends["other_ends"][0]["command"], "its command: %r" % ends)
    name = "a lock of the database %s, held by pid %d (rank 1)" % (os.path.basename(path), holder) if path else "a lock of an SQLite database, held by pid %d (rank 1)" % holder
    call = check_ends(waiter, "database", {holder: None}, holder, *others, named=name)
    check(call.get("database") == path, "the database: %r" % call)


def writer_and_writer(directory, mode, interpreter="/usr/bin/python3"):
    path = database(directory, mode)
    with Processes() as run:
        holder = run.python(WRITES + STAYS, path, call="read", interpreter=interpreter, env=rank(1))
        waiter = run.python(WRITES, path, call="clock_nanosleep", interpreter=interpreter, env=rank(0))
        check_holder(waiter, holder, path)


def case_a_writer_in_rollback_mode(directory):
    writer_and_writer(directory, ROLLBACK)


def case_a_writer_in_wal_mode(directory):
    writer_and_writer(directory, WAL)


def case_another_python(directory):
    for version in ("3.12", "3.13", "3.11", "3.10"):
        try:
            interpreter = find(version)
        except Skip:
            continue
        if interpreter.sysroot or subprocess.run([interpreter.path, "-c", "import sqlite3"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            continue
        for mode in (ROLLBACK, WAL):
            path = os.path.join(directory, mode)
            os.mkdir(path)
            writer_and_writer(path, mode, interpreter.path)
        return
    raise Skip("no CPython but the system's has sqlite3 here")


def case_a_reader_who_is_kept_out(directory):
    path = database(directory, ROLLBACK)
    with Processes() as run:
        holder = run.python(OPEN + "c.execute('BEGIN EXCLUSIVE')\n" + STAYS, path, call="read", env=rank(1))
        waiter = run.python(OPEN + "c.execute('SELECT * FROM trials').fetchall()", path, call="clock_nanosleep", env=rank(0))
        check_holder(waiter, holder, path)


def case_a_thread_other_than_the_main_thread(directory):
    path = database(directory, WAL)
    code = "import threading\nthreading.Thread(target=lambda: sqlite3.connect(sys.argv[1], timeout=100000).execute('BEGIN IMMEDIATE')).start()\n"
    with Processes() as run:
        holder = run.python(WRITES + STAYS, path, call="read")
        waiter = run.python(OPEN + code + STAYS, path, call="read")
        tid = next(int(task) for task in os.listdir("/proc/%d/task" % waiter) if int(task) != waiter)
        wait_for_call(tid, "clock_nanosleep")
        report = json_report("attach", "--pids", waiter)
        calls = {thread["tid"]: thread["syscall"] for thread in report["ranks"][0]["threads"]}
        check([end["pid"] for end in calls[tid]["other_ends"]] == [holder] and calls[tid]["database"] == path, "the thread that waits: %r" % calls)
        check("database" not in calls[waiter], "the main thread: %r" % calls)


def case_who_does_not_wait(directory):
    """A reader in WAL mode while another process writes, and a reader of a reserved database: they have read, and sleep for other
    reasons."""
    for mode in (WAL, ROLLBACK):
        path = database(directory, mode, mode)
        with Processes() as run:
            holder = run.python(WRITES + STAYS, path, call="read")
            reader = run.python(OPEN + "c.execute('BEGIN')\nc.execute('SELECT * FROM trials').fetchall()\ntime.sleep(1000)", path, call="clock_nanosleep")
            check_nobody(reader)
            check_nobody(reader, holder)


def case_a_writer_who_waits_for_readers(directory):
    """Readers share their lock: no process has the database for itself."""
    path = database(directory, ROLLBACK)
    with Processes() as run:
        run.python(OPEN + "c.execute('BEGIN')\nc.execute('SELECT * FROM trials').fetchall()\n" + STAYS, path, call="read")
        check_nobody(run.python(WRITES + "c.execute('INSERT INTO trials VALUES (1)')\nc.execute('COMMIT')", path, call="clock_nanosleep"))


def case_its_own_other_connection(directory):
    path = database(directory, WAL)
    with Processes() as run:
        check_nobody(run.python(WRITES + "sqlite3.connect(sys.argv[1], timeout=100000).execute('BEGIN IMMEDIATE')", path, call="clock_nanosleep"))


def case_several_databases(directory):
    one, two = database(directory, WAL, "one.db"), database(directory, ROLLBACK, "two.db")
    both = OPEN + "d = sqlite3.connect(sys.argv[2], timeout=100000, isolation_level=None)\n[o.execute('SELECT * FROM trials').fetchall() for o in (c, d)]\n"
    with Processes() as run:
        holder = run.python(WRITES + STAYS, two, call="read", env=rank(1))
        waiter = run.python(both + "d.execute('BEGIN IMMEDIATE')", one, two, call="clock_nanosleep", env=rank(0))
        check_holder(waiter, holder, two)
        other = run.python(WRITES + STAYS, one, call="read")
        check_nobody(waiter, holder, other)           # it is not known which of the two it wants
    with Processes() as run:
        holder = run.python(both + "c.execute('BEGIN IMMEDIATE')\nd.execute('BEGIN IMMEDIATE')\n" + STAYS, one, two, call="read", env=rank(1))
        waiter = run.python(both + "d.execute('BEGIN IMMEDIATE')", one, two, call="clock_nanosleep", env=rank(0))
        check_holder(waiter, holder, None)


def case_descriptors_of_others_cannot_be_read(directory):
    """The kernel's list names the holder, whose descriptors an ordinary user may not read."""
    with Reachable() as reachable, Processes() as run:
        program = reachable.copy(tool())
        path = database(reachable.directory, ROLLBACK)
        os.chmod(path, 0o666)
        os.chmod(reachable.directory, 0o777)
        holder = run.python(WRITES + STAYS, path, call="read")
        waiter = run.start(as_nobody(["/usr/bin/python3", "-c", "import sys\n" + WRITES, path]))
        wait_for_call(waiter, "clock_nanosleep")
        command = [program, "attach", "--samples", "1", "--pids", str(waiter), "--format", "json"]
        done = subprocess.run(as_nobody(command), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60, cwd="/", check=False)
        if done.returncode != 0:
            raise Skip("one's own processes may not be traced here")
        call = call_of(json.loads(done.stdout), waiter)
        check([end["pid"] for end in call.get("other_ends", [])] == [holder] and call["database"] == path, "%r" % call)


def case_a_verdict(directory):
    """Rank 0 waits for the database that rank 1 has locked."""
    path = database(directory, WAL)
    with Processes() as run:
        holder = run.python(WRITES + "def sweep():\n  time.sleep(1000)\nsweep()", path, call="clock_nanosleep", env=rank(1))
        waiter = run.python(WRITES, path, call="clock_nanosleep", env=rank(0))
        verdict = json_report("attach", "--pids", holder, waiter)["verdict"]
        check([(one["rank"], one["reason"]) for one in verdict["suspects"]] == [(1, "user-code")] and "a lock of the database trials.db" in verdict["summary"], "%r" % verdict)
        # Without the holder in the job, the suspect's sentence names it.
        status, out, err = run_tool("attach", "--pids", waiter, "--threads", "all")
        text = " ".join(text_of(out).split())
        check(status == 0 and err == b"" and "for a lock of the database trials.db, held by pid %d (python3 -c" % holder in text, text)


def case_a_saved_report(directory):
    path = database(directory, ROLLBACK)
    with Processes() as run:
        holder = run.python(WRITES + STAYS, path, call="read")
        waiter = run.python(WRITES, path, call="clock_nanosleep")
        saved = os.path.join(directory, "report.json")
        check(run_tool("attach", "--pids", waiter, "--format", "json", "-o", saved)[0] == 0, "attach")
        call = call_of(json_report("report", saved), waiter)
        check([end["pid"] for end in call["other_ends"]] == [holder] and call["database"] == path, "%r" % call)


if __name__ == "__main__":
    cases.run(globals(), "database_locks")
