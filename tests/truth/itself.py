"""The tool among the processes that it is given: itself, the processes that have started it, and arguments that are no process."""
import json
import os
import re
import shutil
import subprocess

import cases
from command_line import native, text_of
from odd_targets import Reachable, problems_of, run_as_nobody
from processes import Skip, check, json_report, run_tool, tool
from truth_native import compare
from truth_python import only_rank

RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS", "PMI_RANK", "OMPI_COMM_WORLD_RANK")

HINT_OF_A_LIST = b"hint: jobs of other users are listed if rankstacks is run as root, or as that user\n"


def in_a_shell(script, **variables):
    """(the shell's pid, the tool's report or None, stderr). The shell waits for the tool, and has a rank's variables."""
    environment = {name: value for name, value in os.environ.items() if name not in RANK_VARIABLES}
    environment.update(variables, TOOL=tool())
    shell = subprocess.Popen(["sh", "-c", script + "\n:"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = shell.communicate(timeout=120)
    return shell.pid, json.loads(out) if out else None, err.decode()


def pids_of(report):
    return {rank["pid"]: rank for rank in (report or {"ranks": []})["ranks"]}


def commands_of(report):
    return [" ".join(rank["command"]) for rank in (report or {"ranks": []})["ranks"]]


def check_without_itself(shell, report, err, where):
    check(shell not in pids_of(report), "%s: the shell is a rank: %r" % (where, report))
    check(not any("attach --samples 1 --job" in command for command in commands_of(report)), "%s: the tool or what waits for it is a rank: %r" % (where, commands_of(report)))
    check("itself" not in err and not re.search(r"\bpids? %d\b" % shell, err), "%s: %s" % (where, err))


def case_a_shell_with_a_ranks_variables(directory):
    """As in `srun --pty bash`. Other ranks may run on this machine: only the shell's own process tree is checked. Where those are
    several jobs, the tool lists them."""
    command = '"$TOOL" attach --samples 1 --job --format json'
    for script in (command, "timeout 60 " + command, command + " | cat", "/usr/bin/python3 -c 'import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)' " + command):
        for variables in ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, {"RANK": "0", "WORLD_SIZE": "1"}):
            shell, report, err = in_a_shell(script, **variables)
            check_without_itself(shell, report, err, "%s with %r" % (script, variables))
            check("cat" not in commands_of(report), "what reads its output is a rank: %r" % commands_of(report))


def case_a_rank_and_the_tool_in_one_shell(directory):
    environment = dict(os.environ, RANK="41", WORLD_SIZE="64")
    with native("threads", env=environment) as fixture:
        # The fixture's parent is this test, the shell's too: one rank by itself, and one started in the same shell.
        shell, report, err = in_a_shell('"$TOOL" attach --samples 1 --job pid:%d --format json' % fixture.pid, RANK="7", WORLD_SIZE="64")
        check_without_itself(shell, report, err, "a rank elsewhere")
        check(pids_of(report)[fixture.pid]["rank"] == 41, "the rank: %r" % pids_of(report).get(fixture.pid))
        fixture.check_unharmed()
    program = os.path.join(os.environ["RANKSTACKS_FIXTURES"], "threads")
    script = 'mkfifo "$DIRECTORY/in" "$DIRECTORY/out"; "%s" <"$DIRECTORY/in" >"$DIRECTORY/out" & exec 3>"$DIRECTORY/in"; read -r line <"$DIRECTORY/out"; "$TOOL" attach --samples 1 --job pid:$! --format json' % program
    shell, report, err = in_a_shell(script, RANK="7", WORLD_SIZE="64", DIRECTORY=directory)
    check_without_itself(shell, report, err, "a rank in the same shell")
    own = [rank for rank in report["ranks"] if rank["rank"] == 7 and rank["executable"] == os.path.realpath(program)]
    check(len(own) == 1 and own[0]["kind"] == "rank" and own[0]["threads"], "the rank: %r" % [(r["rank"], r["executable"]) for r in report["ranks"]])


def case_an_ancestor_that_is_named(directory):
    shell, report, err = in_a_shell('timeout 60 "$TOOL" attach --samples 1 --pids $$ --format json', RANK="3")
    check(list(pids_of(report)) == [shell] and err == "", "ranks %r, %s" % (pids_of(report), err))
    check(report["ranks"][0]["status"] == "complete" and report["ranks"][0]["rank"] == 3, "%r" % report["ranks"][0])


def case_itself(directory):
    for command in ('exec "$TOOL" attach --samples 1 --pids $$ --format json', 'exec "$TOOL" attach --samples 1 --pids $$ --format json --gpu'):
        shell, report, err = in_a_shell(command)
        rank = only_rank(report, shell)
        check(rank["status"] == "failed" and rank["threads"] == [] and "this is rankstacks itself" in problems_of(rank) and "CAP_SYS_PTRACE" not in problems_of(rank), "%r" % rank)
        check("this is rankstacks itself" in err, err)
    done = subprocess.run(["sh", "-c", 'exec "$0" doctor --pids $$', tool()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    check(done.returncode == 1 and b"this is rankstacks itself" in done.stdout and done.stderr == b"", "doctor: %r" % done)


def case_a_thread_is_no_process(directory):
    with native("threads") as fixture:
        tid = next(thread["tid"] for thread in fixture.ready["threads"] if thread["tid"] != fixture.pid)
        said = "pid %d: a thread of process %d (threads), not a process" % (tid, fixture.pid)
        rank = only_rank(json_report("attach", "--pids", tid, expect=2), tid)
        check(rank["status"] == "failed" and rank["threads"] == [] and rank["problems"] == [{"code": "other", "message": said, "hint": "name the process: --pids %d" % fixture.pid}], "%r" % rank)
        report = json_report("attach", "--pids", "%d,%d" % (tid, fixture.pid), expect=1)
        check(only_rank(report, tid)["problems"][0]["message"] == said, "%r" % only_rank(report, tid))
        compare(fixture.ready, only_rank(report, fixture.pid), "its process")
        status, out, err = run_tool("doctor", "--pids", tid)
        check(status == 1 and "a thread of process %d (threads), not a process" % fixture.pid in " ".join(text_of(out).split()), "doctor: %d %s" % (status, text_of(out)))
        fixture.check_unharmed()


def case_the_kernels_threads_are_one_line(directory):
    try:
        with open("/proc/2/stat", encoding="utf-8") as stat:
            if "(kthreadd)" not in stat.read():
                raise Skip("pid 2 is not kthreadd here")
    except FileNotFoundError:
        raise Skip("no kernel threads in this pid namespace")
    report = json_report("attach", "--pids", 2, expect=2)
    check([rank["pid"] for rank in report["ranks"]] == [2] and "a kernel thread" in problems_of(report["ranks"][0]), "%r" % report["ranks"])


def case_ranks_that_another_user_may_not_see(directory):
    with Reachable() as reachable, native("chain", env=dict(os.environ, RANK="0", WORLD_SIZE="1")) as fixture:
        program = reachable.copy(tool())
        for command in ("attach", "doctor"):
            status, out, err = run_as_nobody(program, command, "--job")
            check(status == 2 and out == b"", "%s: status %d, %r" % (command, status, out))
            # Jobs of other programs may be known by their titles: then they are listed.
            listed = b"--job takes one" in err
            check((HINT_OF_A_LIST if listed else b"processes of other users cannot be read\nhint: run rankstacks as root, or as the user whose job it is\n") in err, "%s: %r" % (command, err))
        fixture.check_unharmed()


def case_jobs_that_another_user_sees_by_their_titles(directory):
    """They are no whole list: there may be jobs without a title."""
    titles = ("VLLM::Worker_TP0", "sglang::scheduler_TP0")
    with Reachable() as reachable, native("chain", env=dict(os.environ, RANK="0", WORLD_SIZE="1")) as fixture:
        servers = [subprocess.Popen([title, "300"], executable=shutil.which("sleep"), env={}) for title in titles]
        try:
            status, out, err = run_as_nobody(reachable.copy(tool()), "attach", "--job")
        finally:
            for server in servers:
                server.kill()
                server.wait()
        check(status == 2 and out == b"", "status %d, %r" % (status, out))
        check(all(title.encode() in err for title in titles) and err.endswith(HINT_OF_A_LIST), "%r" % err)
        fixture.check_unharmed()


if __name__ == "__main__":
    cases.run(globals(), "itself")
