"""The process at the other end of what a thread is blocked on: real pipes, FIFOs, sockets, file locks and children, of processes that the
test has started."""
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time

import cases
from command_line import text_of
from odd_targets import Reachable, as_nobody
from processes import Opened, Skip, check, json_report, run_tool, settle, state_of, tool, wait_until
from truth_python import only_rank

CLONE_NEWNET, CLONE_NEWPID = 0x40000000, 0x20000000
SYSTEM_CALLS = {"read": 0, "write": 1, "poll": 7, "connect": 42, "accept": 43, "sendto": 44, "recvfrom": 45, "wait4": 61, "fcntl": 72, "flock": 73, "epoll_wait": 232, "waitid": 247, "pselect6": 270,
                "accept4": 288, "clock_nanosleep": 230}


# A process that is stopped after it has written a part of its bytes is not in a system call any more: so the last byte is written alone.
FILL = "os.set_blocking(w, False)\ntry:\n  while True: %s\nexcept BlockingIOError: pass\n"


class Processes:
    """Processes that are ended when the test is over, on every path."""

    def __init__(self):
        self.all = []

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        below = [pid for process in self.all for pid in descendants(process.pid)]
        for process in self.all:
            process.kill()
            process.wait()
        for pid in below:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def start(self, command, pass_fds=(), **options):
        self.all.append(subprocess.Popen(command, pass_fds=pass_fds, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **options))
        return self.all[-1].pid

    def keep(self, *descriptors):
        """A process that has these descriptors open, and does not use them."""
        return self.start(["sleep", "1000"], pass_fds=descriptors)

    def python(self, code, *arguments, call, pass_fds=(), interpreter="/usr/bin/python3", **options):
        """A Python process that runs the code until its main thread is blocked in that call; the code has its arguments and some
        imports."""
        program = "import fcntl, os, select, socket, subprocess, sys, time\n" + code
        pid = self.start([interpreter, "-c", program] + [str(argument) for argument in arguments], pass_fds=pass_fds, **options)
        wait_for_call(pid, call)
        return pid


def children_of(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def descendants(pid):
    return [one for child in children_of(pid) for one in [child] + descendants(child)]


def wait_for_call(pid, call):
    def blocked():
        check(state_of(pid) not in ("gone", "Z"), "the process has ended: pid %d" % pid)
        with open("/proc/%d/syscall" % pid, encoding="ascii") as file:
            return file.read().split(" ", 1)[0] == str(SYSTEM_CALLS[call])
    wait_until(blocked, "pid %d in %s" % (pid, call))
    settle(pid)
    if call == "clock_nanosleep":      # SQLite's first attempts to get a lock are milliseconds apart, the later ones 0.1 s
        wait_until(lambda: wakes_in(pid, 0.08) <= 1, "pid %d in long sleeps" % pid)


def wakes_in(pid, seconds):
    def switches():
        with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt_switches:"))
    before = switches()
    time.sleep(seconds)
    return switches() - before


def call_of(report, pid):
    thread = next(thread for thread in only_rank(report, pid)["threads"] if thread["tid"] == pid)
    check(thread["syscall"] is not None, "pid %d is in no system call: %r" % (pid, thread))
    return thread["syscall"]


def report_in_call(pid, *others):
    """A report of a thread that wakes up now and then to try again: a sample may hit the moment in which it is awake."""
    for _ in range(20):
        report = json_report("attach", "--pids", *map(str, (pid,) + others))
        if next(thread for thread in only_rank(report, pid)["threads"] if thread["tid"] == pid)["syscall"] is not None:
            break
    return report


def check_ends(pid, kind, expected, *others, own_end=False, named=None):
    """attach to `pid` and `others`: the other ends of the call are `expected`, {pid: command or None}."""
    call = call_of(report_in_call(pid, *others), pid)
    wanted = [{"pid": one, "command": expected[one], "kind": kind} for one in sorted(expected)]
    check(call.get("other_ends", []) == wanted, "other ends %r instead of %r" % (call, wanted))
    check(call.get("own_end", False) == own_end, "own_end: %r" % call)
    check("other_host" not in call, "another host: %r" % call)
    if named is not None:
        for _ in range(20):
            status, out, err = run_tool("attach", "--threads", "all", "--pids", *map(str, (pid,) + others))
            text = " ".join(text_of(out).split())
            if named in text:
                break
        check(status == 0 and err == b"" and named in text, "%r is not in the text (status %d, %r):\n%s" % (named, status, err, text_of(out)))
    return call


def all_can_be_seen():
    """Whether root can read other processes' descriptors: on some machines it cannot (a security module, a supervisor)."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for descriptor in os.listdir("/proc/%s/fd" % pid):
                os.readlink("/proc/%s/fd/%s" % (pid, descriptor))
        except PermissionError:
            return False
        except OSError:
            pass
    return True


def check_itself_alone(pid, kind):
    """The process itself is named only if no other process can have the other end."""
    check_ends(pid, kind, {pid: None}) if all_can_be_seen() else check_ends(pid, kind, {}, own_end=True)


def check_nobody(pid, *others):
    call = call_of(json_report("attach", "--pids", *map(str, (pid,) + others)), pid)
    check(not {"other_ends", "own_end", "database", "other_host"} & call.keys(), "somebody: %r" % call)


def rank(number, world=2):
    return dict(os.environ, RANK=str(number), WORLD_SIZE=str(world))


def case_a_pipe_of_another_rank(directory):
    with Processes() as run:
        reads, writes = os.pipe()
        reader = run.python("os.read(int(sys.argv[1]), 1)", reads, call="read", pass_fds=(reads,), env=rank(0))
        writer = run.start(["sleep", "1000"], pass_fds=(writes,), env=rank(1))
        os.close(reads)
        os.close(writes)
        check_ends(reader, "pipe", {writer: None}, writer, named="pipe:[%d]) from pid %d (rank 1)" % (os.stat("/proc/%d/fd/%d" % (writer, writes)).st_ino, writer))


def case_a_pipe_of_an_unrelated_process(directory):
    with Processes() as run:
        reads, writes = os.pipe()
        reader = run.python("os.read(int(sys.argv[1]), 1)", reads, call="read", pass_fds=(reads,))
        run.keep(reads)                # another reader is no other end
        first, second = run.keep(writes), run.keep(reads, writes)
        os.close(reads)
        os.close(writes)
        check_ends(reader, "pipe", {first: "sleep 1000", second: "sleep 1000"}, named="from pid %d (sleep 1000) or pid %d (sleep 1000)" % tuple(sorted((first, second))))
        # If a process of the job is among them, the search ends.
        check_ends(reader, "pipe", {first: None}, first)


def case_a_full_pipe(directory):
    with Processes() as run:
        reads, writes = os.pipe()
        writer = run.python("w = int(sys.argv[1])\n" + FILL % "os.write(w, bytes(4096))" + "os.set_blocking(w, True)\nos.write(w, b'x')", writes, call="write", pass_fds=(writes,))
        reader = run.keep(reads)
        os.close(reads)
        os.close(writes)
        check_ends(writer, "pipe", {reader: "sleep 1000"}, named="to pid %d (sleep 1000)" % reader)


def reader_with_another_writer(run):
    """(reader, other): the reader waits for a pipe whose other end it has open as well, and so has another process."""
    reads, writes = os.pipe()
    reader = run.python("os.read(int(sys.argv[1]), 1)", reads, call="read", pass_fds=(reads, writes))
    other = run.keep(writes)
    os.close(reads)
    os.close(writes)
    return reader, other


def case_a_pipe_of_its_own(directory):
    with Processes() as run:
        reader = run.python("reads, writes = os.pipe()\nos.read(reads, 1)", call="read")
        check_itself_alone(reader, "pipe")
    with Processes() as run:
        reader, other = reader_with_another_writer(run)
        check_ends(reader, "pipe", {other: "sleep 1000"}, own_end=True, named="from pid %d (sleep 1000) or its own process" % other)


def case_a_pipe_that_a_child_has_inherited(directory):
    code = "reads, writes = os.pipe()\nif os.fork() == 0:\n  time.sleep(1000)\nos.read(reads, 1)"
    with Processes() as run:
        reader = run.python(code, call="read", env=rank(0))
        child, = children_of(reader)
        check_ends(reader, "pipe", {child: None}, own_end=True, named="from pid %d (a child of rank 0) or its own process" % child)


def case_a_fifo(directory):
    here, elsewhere = os.path.join(directory, "fifo"), os.path.join(directory, "elsewhere", "fifo")
    os.mkdir(os.path.dirname(elsewhere))
    os.mkfifo(here)
    os.mkfifo(elsewhere)
    with Processes() as run:
        both = os.open(here, os.O_RDWR)        # so that no open() waits
        other = os.open(elsewhere, os.O_RDWR)
        reader = run.python("os.read(os.open(sys.argv[1], os.O_RDONLY), 1)", here, call="read")
        writes, reads = os.open(here, os.O_WRONLY), os.open(here, os.O_RDONLY)
        writer = run.keep(writes)
        run.keep(reads)
        run.keep(other)
        for descriptor in (both, other, writes, reads):
            os.close(descriptor)
        watch = Opened(here)
        check_ends(reader, "pipe", {writer: "sleep 1000"}, named="fd 3 -> %s) from pid %d (sleep 1000)" % (here, writer))
        watch.check_never_opened("attach")
        watch.close()


def case_a_pair_of_unix_sockets(directory):
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
        with Processes() as run:
            one, two = socket.socketpair(socket.AF_UNIX, kind)
            reader = run.python("socket.socket(fileno=int(sys.argv[1])).recv(1)", one.fileno(), call="recvfrom", pass_fds=(one.fileno(),), env=rank(0))
            other = run.start(["sleep", "1000"], pass_fds=(two.fileno(),), env=rank(1))
            one.close()
            two.close()
            check_ends(reader, "socket", {other: "sleep 1000"})
            check_ends(reader, "socket", {other: None}, other, named="from pid %d (rank 1)" % other)
    with Processes() as run:
        one, two = socket.socketpair()
        fill = "s = socket.socket(fileno=int(sys.argv[1]))\nw = s.fileno()\n" + FILL % "s.send(b'x')" + "s.setblocking(True)\ns.send(b'x')"
        writer = run.python(fill, one.fileno(), call="sendto", pass_fds=(one.fileno(),))
        other = run.keep(two.fileno())
        one.close()
        two.close()
        check_ends(writer, "socket", {other: "sleep 1000"}, named="to pid %d (sleep 1000)" % other)


def case_a_server_of_a_unix_socket(directory):
    with Processes() as run, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.join(directory, "socket"))
        listener.listen(1)
        reader = run.python("s = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\ns.recv(1)", os.path.join(directory, "socket"), call="recvfrom")
        check_nobody(reader)              # no process has accepted it yet
        connection, _ = listener.accept()
        with connection:
            check([end["pid"] for end in call_of(json_report("attach", "--pids", reader), reader)["other_ends"]] == [os.getpid()], "the server")


def tcp_pair(run, family, address, code, call):
    """(the process that waits, the listening socket)"""
    listener = socket.socket(family)
    listener.bind((address, 0))
    listener.listen(4)
    client = "s = socket.socket(%d)\ns.connect((sys.argv[1], int(sys.argv[2])))\n" % family
    return run.python(client + code, address, listener.getsockname()[1], call=call, env=rank(0)), listener


def case_tcp_on_this_machine(directory):
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        for code, call in (("s.recv(1)", "recvfrom"), ("s.settimeout(1000)\ns.recv(1)", "poll"), ("select.select([s], [], [], 1000)", "pselect6"),
                           ("e = select.epoll()\ne.register(s, select.EPOLLIN)\ne.poll()", "epoll_wait")):
            with Processes() as run:
                try:
                    reader, listener = tcp_pair(run, family, address, code, call)
                except OSError as error:
                    raise Skip("%s: %s" % (address, error))
                with listener:
                    # Not accepted yet: the listening process is the other end.
                    waits = call_of(json_report("attach", "--pids", reader), reader)
                    check([(end["pid"], end["kind"]) for end in waits.get("other_ends", [])] == [(os.getpid(), "socket")], "%s: %r" % (code, waits))
                    connection, _ = listener.accept()
                    with connection:
                        other = run.start(["sleep", "1000"], pass_fds=(connection.fileno(),), env=rank(1))
                check_ends(reader, "socket", {other: "sleep 1000"})
                check_ends(reader, "socket", {other: None}, other, named="%s pid %d (rank 1)" % (") from" if call == "recvfrom" else "), the other end:", other))


def case_a_connection_that_nobody_answers(directory):
    """The queue of the listening socket is full: a connect() that waits for the listening process."""
    with Processes() as run, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        full = [socket.socket() for _ in range(3)]
        for one in full:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        client = run.python("s = socket.socket()\ns.connect(('127.0.0.1', int(sys.argv[1])))", listener.getsockname()[1], call="connect")
        ends = call_of(json_report("attach", "--pids", client), client).get("other_ends", [])
        check([(end["pid"], end["kind"]) for end in ends] == [(os.getpid(), "socket")], "%r" % ends)
        for one in full:
            one.close()


LOCK = {"flock": "fcntl.flock(f, fcntl.LOCK_EX)", "record": "fcntl.lockf(f, fcntl.LOCK_EX)",
        "open-file": "import struct\nfcntl.fcntl(f, 38, struct.pack('hhlli4x', fcntl.F_WRLCK, 0, 0, 0, 0))"}


def case_a_file_lock_of_another_process(directory):
    for name, call in (("flock", "flock"), ("record", "fcntl"), ("open-file", "fcntl")):
        path = os.path.join(directory, name + ".lock")
        take = "f = open(sys.argv[1], 'a')\n%s\n" % LOCK[name]
        with Processes() as run:
            holder = run.python(take + "os.read(os.pipe()[0], 1)", path, call="read", env=rank(1))
            elsewhere = run.python(take + "os.read(os.pipe()[0], 1)", path + "2", call="read")
            waiter = run.python(take, path, call=call, env=rank(0))
            command = "python3 -c import fcntl, os, select, socket, subprocess, sys, time\nf = open(sys.argv[1"
            check_ends(waiter, "lock", {holder: command[:80]})
            check_ends(waiter, "lock", {holder: None}, holder, elsewhere, named="%s), held by pid %d (rank 1)" % (path, holder))
            second = run.python(take, path, call=call)
            check_ends(second, "lock", {holder: None}, holder, waiter)


def case_shared_file_locks(directory):
    path = os.path.join(directory, "lock")
    open(path, "w", encoding="ascii").close()
    with Processes() as run:
        shared = "f = open(sys.argv[1])\nfcntl.flock(f, fcntl.LOCK_SH)\nos.read(os.pipe()[0], 1)"
        holders = [run.python(shared, path, call="read", env=rank(n, 4)) for n in (1, 2)]
        waiter = run.python("f = open(sys.argv[1])\nfcntl.flock(f, fcntl.LOCK_EX)", path, call="flock", env=rank(0, 4))
        one, two = sorted(holders)
        check_ends(waiter, "lock", {one: None, two: None}, *holders, named="held by pid %d (rank 1) and pid %d (rank 2)" % tuple(holders) if holders == [one, two] else None)


def case_parts_of_a_file(directory):
    path = os.path.join(directory, "file")
    with Processes() as run:
        hold = "f = open(sys.argv[1], 'a')\nfcntl.lockf(f, fcntl.LOCK_EX, 10, int(sys.argv[2]))\n"
        run.python(hold + "os.read(os.pipe()[0], 1)", path, 0, call="read")
        second = run.python(hold + "os.read(os.pipe()[0], 1)", path, 10, call="read", env=rank(1))
        waiter = run.python(hold, path, 15, call="fcntl")
        check_ends(waiter, "lock", {second: None}, second)


def case_a_lock_whose_taker_has_ended(directory):
    """flock(2) locks belong to the open file: a child has inherited it, and the kernel's list names the process that has ended."""
    path = os.path.join(directory, "lock")
    with Processes() as run, open(path, "w", encoding="ascii") as file:
        run.python("fcntl.flock(int(sys.argv[1]), fcntl.LOCK_EX)\nos.read(os.pipe()[0], 1)", file.fileno(), call="read", pass_fds=(file.fileno(),))
        taker = run.all.pop()
        holder = run.keep(file.fileno())
        taker.kill()
        taker.wait()
        file.close()
        waiter = run.python("fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX)", path, call="flock")
        check_ends(waiter, "lock", {holder: "sleep 1000"})


def case_a_lock_of_its_own(directory):
    with Processes() as run:
        waiter = run.python("f, g = open(sys.argv[1], 'w'), open(sys.argv[1], 'w')\nfcntl.flock(f, fcntl.LOCK_EX)\nfcntl.flock(g, fcntl.LOCK_EX)", os.path.join(directory, "lock"), call="flock")
        check_itself_alone(waiter, "lock")


def case_a_named_child(directory):
    for code, call in (("os.waitpid(c.pid, 0)", "wait4"), ("os.waitid(os.P_PID, c.pid, os.WEXITED)", "waitid"),
                       ("os.waitid(os.P_PIDFD, os.pidfd_open(c.pid), os.WEXITED)", "waitid"), ("p = select.poll()\np.register(os.pidfd_open(c.pid), select.POLLIN)\np.poll()", "poll"),
                       ("os.waitpid(-1, 0)", None)):
        with Processes() as run:
            children = "o = subprocess.Popen(['sleep', '1000'])\nc = subprocess.Popen(['sleep', '1001'])\n"
            parent = run.python(children + code, call=call or "wait4", env=rank(0))
            if call is None:                  # any child
                check_ends(parent, "child", {child: None for child in children_of(parent)})
            else:
                last = max(children_of(parent))
                check_ends(parent, "child", {last: None}, named="%s pid %d (a child of rank 0)" % ("wait4 for" if call == "wait4" else "for", last))


def case_children_of_an_event_loop(directory):
    program = ("import asyncio\nasyncio.set_child_watcher(asyncio.PidfdChildWatcher())\nasync def work():\n%s"
               "    c = await asyncio.create_subprocess_exec('sleep', '1001', stdout=asyncio.subprocess.PIPE)\n    await c.wait()\nasyncio.run(work())")
    connects = "    s = await asyncio.start_server(print, '127.0.0.1', 0)\n    r, w = await asyncio.open_connection(*s.sockets[0].getsockname())\n"
    with Processes() as run:
        for code, awaits_child in ((program % "", True), (program % connects, False)):    # somebody may send something as well
            parent = run.python(code, call="epoll_wait", env=rank(0))
            wait_until(lambda: children_of(parent) and state_of(children_of(parent)[0]) == "S", "its child sleeps")
            settle(parent)
            if awaits_child:
                check_ends(parent, "child", {children_of(parent)[0]: None})
            else:
                check_nobody(parent)


def case_nobody(directory):
    with Processes() as run:
        check_nobody(run.python("s = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen()\ns.accept()", call="accept4"))
        check_nobody(run.python("a, b = os.pipe(), os.pipe()\np = select.poll()\n[p.register(x[0], select.POLLIN) for x in (a, b)]\np.poll()", call="poll"))
        check_nobody(run.python("import ctypes\nos.read(ctypes.CDLL(None).eventfd(0, 0), 8)", call="read"))
        check_nobody(run.python("s = socket.socket(type=socket.SOCK_DGRAM)\ns.bind(('127.0.0.1', 0))\ns.recv(1)", call="recvfrom"))


def unshare(kind):
    def prepare():
        if ctypes.CDLL(None, use_errno=True).unshare(kind) != 0:
            os._exit(76)
    return prepare


def may_unshare(kind):
    done = subprocess.run(["true"], preexec_fn=unshare(kind), check=False)
    if done.returncode == 76:
        raise Skip("unshare is not permitted here")


LOOPBACK_UP = "import struct\nfcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh14x', b'lo', 0x49))\n"      # SIOCSIFFLAGS: IFF_UP, IFF_LOOPBACK, IFF_RUNNING


def case_another_network_namespace(directory):
    may_unshare(CLONE_NEWNET)
    with Processes() as run:
        pair = "a, b = socket.socketpair()\nif os.fork() == 0:\n  a.close()\n  time.sleep(1000)\nb.close()\na.recv(1)"
        check_nobody(run.python(pair, call="recvfrom", preexec_fn=unshare(CLONE_NEWNET)))      # sock_diag does not reach its Unix sockets
    with Processes() as run:
        tcp = LOOPBACK_UP + "l = socket.socket()\nl.bind(('127.0.0.1', 0))\nl.listen()\na = socket.create_connection(l.getsockname())\nb, _ = l.accept()\nif os.fork() == 0:\n" \
                            "  a.close()\n  time.sleep(1000)\nb.close()\nl.close()\na.recv(1)"
        reader = run.python(tcp, call="recvfrom", preexec_fn=unshare(CLONE_NEWNET))
        check_ends(reader, "socket", {children_of(reader)[0]: None})


def case_a_child_in_another_pid_namespace(directory):
    may_unshare(CLONE_NEWPID)
    code = "p = os.fork()\nif p:\n  os.waitpid(-1, 0)\n  sys.exit()\nfor _ in range(5):\n  c = subprocess.Popen(['sleep', '1000'])\nos.waitpid(c.pid, 0)"
    with Processes() as run:
        outer = run.python(code, call="wait4", preexec_fn=unshare(CLONE_NEWPID))
        inner, = children_of(outer)
        wait_for_call(inner, "wait4")
        check_ends(inner, "child", {max(children_of(inner)): None})


def case_a_hostile_name(directory):
    with Processes() as run:
        reads, writes = os.pipe()
        reader = run.python("os.read(int(sys.argv[1]), 1)", reads, call="read", pass_fds=(reads,))
        other = run.start(["\x1b[31m\n" + "x" * 100 + "\u202e", "1000"], executable="/bin/sleep", pass_fds=(writes,))
        os.close(reads)
        os.close(writes)
        check_ends(reader, "pipe", {other: ("\x1b[31m\n" + "x" * 100)[:80]}, named="from pid %d (\\x1b[31m" % other)


def case_descriptors_of_others_cannot_be_read(directory):
    """For an ordinary user the other end of his pipe may be in any process: the report says only that the process has it itself."""
    with Reachable() as reachable, Processes() as run:
        program = reachable.copy(tool())
        reader = run.start(as_nobody(["/usr/bin/python3", "-c", "import os\nreads, writes = os.pipe()\nos.read(reads, 1)"]))
        wait_until(lambda: b"python3" in open("/proc/%d/cmdline" % reader, "rb").read().split(b"\0")[0], "the program")
        wait_for_call(reader, "read")
        done = subprocess.run(as_nobody([program, "attach", "--samples", "1", "--pids", str(reader), "--format", "json"]), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60, cwd="/", check=False)
        report = json.loads(done.stdout)
        if done.returncode != 0:
            raise Skip("one's own processes may not be traced here")
        call = call_of(report, reader)
        check("other_ends" not in call and call.get("own_end") is True, "%r" % call)
        check_itself_alone(reader, "pipe")


def case_a_saved_report(directory):
    with Processes() as run:
        reader, other = reader_with_another_writer(run)
        path = os.path.join(directory, "report.json")
        check(run_tool("attach", "--pids", reader, "--format", "json", "-o", path)[0] == 0, "attach")
        call = call_of(json_report("report", path), reader)
        check(call["other_ends"] == [{"pid": other, "command": "sleep 1000", "kind": "pipe"}] and call["own_end"] is True, "%r" % call)


def case_a_loop_that_waits_for_connections(directory):
    """A server between two requests: its event loop waits for connections, and for those that it has accepted. A loop that waits for an
    answer as well has work."""
    serves = "s = socket.create_server(('127.0.0.1', 0)); e = select.epoll(); e.register(s, 1); r, w = os.pipe(); e.register(r, 1)\n"
    accepts = "c = socket.create_connection(s.getsockname()); a, _ = s.accept(); e.register(a, 1)\n"
    asks = "x = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(x.getsockname()); e.register(c, 1)\n"
    with Processes() as processes:
        for code, listens in ((serves, True), (serves + accepts, True), (serves + asks, False), ("e = select.epoll(); r, w = os.pipe(); e.register(r, 1)\n", False)):
            pid = processes.python(code + "e.poll()", call="epoll_wait")
            call = only_rank(json_report("attach", "--pids", pid), pid)["threads"][0]["syscall"]
            check(call.get("listens", False) == listens, "listens is %r after %s" % (call.get("listens"), code))
        path = os.path.join(directory, "engine")
        serves = ("s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); e = select.epoll(); e.register(s, 1)\n"
                  "r, w = socket.socketpair(); e.register(r, 1)\n")
        accepts = "c = socket.socket(socket.AF_UNIX); c.connect(sys.argv[1]); a, _ = s.accept(); e.register(a, 1)\n"
        asks = "x = socket.socket(socket.AF_UNIX); x.bind(sys.argv[1] + '-x'); x.listen(); c = socket.socket(socket.AF_UNIX); c.connect(sys.argv[1] + '-x'); e.register(c, 1)\n"
        taken = "a, _ = x.accept()\n"
        for code, listens in ((serves, True), (serves + accepts, True), (serves + asks + taken, False)):
            pid = processes.python(code + "e.poll()", path, call="epoll_wait")
            call = only_rank(json_report("attach", "--pids", pid), pid)["threads"][0]["syscall"]
            check(call.get("listens", False) == listens, "listens is %r after %s" % (call.get("listens"), code))
            for one in (path, path + "-x"):
                if os.path.exists(one):
                    os.unlink(one)
        pid = processes.python("s = socket.create_server(('127.0.0.1', 0)); p = select.poll(); p.register(s, 1); p.poll()", call="poll")
        check(only_rank(json_report("attach", "--pids", pid), pid)["threads"][0]["syscall"].get("listens") is True, "poll")


if __name__ == "__main__":
    cases.run(globals(), "other_ends")
