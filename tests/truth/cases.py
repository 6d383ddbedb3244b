"""Runs a file of cases: functions case_NAME(directory). CMake registers each one as a test of its own."""
import sys

import processes


def run(namespace, description):
    names = [name[len("case_"):] for name in namespace if name.startswith("case_")]
    if len(sys.argv) != 2 or sys.argv[1] not in names:
        sys.exit("usage: %s CASE    CASE: %s" % (sys.argv[0], " ".join(names)))
    sys.exit(processes.main(lambda directory, name: namespace["case_" + name](directory), description, sys.argv[1:]))
