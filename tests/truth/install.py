"""cmake --install: what lies below the prefix, and that it runs from there."""
import os
import shutil
import subprocess

import cases
from processes import Skip, check, tool

EXPECTED = ["bin/rankstacks", "share/man/man1/rankstacks.1", "share/bash-completion/completions/rankstacks",
            "share/zsh/site-functions/_rankstacks", "share/fish/vendor_completions.d/rankstacks.fish",
            "share/doc/rankstacks/README.md", "share/doc/rankstacks/LICENSE", "share/doc/rankstacks/CHANGELOG.md",
            "share/doc/rankstacks/CONTRIBUTING.md"]
DOCS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "docs")


def case_into_a_prefix(directory):
    if not shutil.which("cmake"):
        raise Skip("no cmake on this machine")
    build = os.path.dirname(tool())
    if not os.path.exists(os.path.join(build, "cmake_install.cmake")):
        raise Skip("%s is no build directory" % build)
    prefix = os.path.join(directory, "prefix")
    done = subprocess.run(["cmake", "--install", build, "--prefix", prefix], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=100)
    check(done.returncode == 0, done.stdout.decode(errors="replace")[-2000:])
    found = sorted(os.path.relpath(os.path.join(at, name), prefix) for at, _, names in os.walk(prefix) for name in names)
    pages = ["share/doc/rankstacks/docs/" + os.path.relpath(os.path.join(at, name), DOCS) for at, _, names in os.walk(DOCS) for name in names]
    check(pages and found == sorted(EXPECTED + pages), "installed are %r" % found)
    version = subprocess.run([os.path.join(prefix, "bin/rankstacks"), "--version"], stdout=subprocess.PIPE, timeout=100)
    check(version.returncode == 0 and version.stdout.startswith(b"rankstacks "), "%r" % version)


if __name__ == "__main__":
    cases.run(globals(), "install")
