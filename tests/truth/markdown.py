"""The report as an issue's body, rendered by real renderers of Markdown: GitHub's cmark-gfm, and markdown-it."""
import glob
import html.parser
import json
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree

import cases
import processes
from command_line import SOURCE, native
from processes import Skip, check, json_report, run_tool

FIXTURES = os.path.join(SOURCE, "fixtures")
LIMIT = 65536
HOSTILE = ("</code></pre></details><script>alert(1)</script>", "@admin please see #1, GH-2 and PROJ-3", "```\n/close\n```\n", "~~~\n# x", "](http://evil) ![x](http://evil/x.png)",
           "https://evil.example www.evil.example x@evil.example", "deadbeefcafe0123", "<img src=x onerror=y>", "| a | b |\n|---|---|\n| c | d |", "`` ` ```` `````", "$$x$$ :tada: [^1] &#64;admin &lt;",
           "\u202e\u200b\x1b[2J", "\"]; click n0 href \"http://evil\"; %%{init: {}}%%", "x\\", "<!--", "-->", "* a\n* b", "    indented", "end\n```mermaid\ngraph LR")
ALLOWED = {"p", "strong", "em", "ul", "li", "code", "pre", "details", "summary"}


def by_cmark(text):
    return subprocess.run(["cmark-gfm", "--unsafe", "-e", "table", "-e", "strikethrough", "-e", "autolink", "-e", "tasklist", "-e", "footnotes"], input=text.encode(), stdout=subprocess.PIPE, check=True).stdout.decode()


def by_markdown_it(text):
    import markdown_it
    return markdown_it.MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text)


def renderers():
    found = {}
    if shutil.which("cmark-gfm"):
        found["cmark-gfm"] = by_cmark
    try:
        import markdown_it    # pylint: disable=unused-import
        found["markdown-it"] = by_markdown_it
    except ImportError:
        pass
    if not found:
        raise processes.Skip("neither cmark-gfm nor Python's markdown_it is installed")
    return found


class Page(html.parser.HTMLParser):
    """Tags, with their attributes; the text outside and inside of code."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.open, self.outside, self.inside, self.balanced = [], [], "", "", True
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, attributes))
        self.open.append(tag)

    def handle_endtag(self, tag):
        self.balanced = self.balanced and bool(self.open) and self.open.pop() == tag

    def handle_comment(self, data):
        self.tags.append(("comment", data))

    def handle_data(self, data):
        if "code" in self.open:
            self.inside += data
        else:
            self.outside += data


def check_page(name, markdown, rendered):
    page = Page(rendered)
    said = "%s:\n%s\n%s" % (name, markdown[:3000], rendered[:3000])
    check(page.balanced and not page.open, "tags are not closed: %s: %s" % (page.open, said))
    for tag, attributes in page.tags:
        check(tag in ALLOWED, "<%s %s>: %s" % (tag, attributes, said))
        check(not attributes or (tag == "code" and attributes in ([("class", "language-text")], [("class", "language-mermaid")])), "<%s %s>: %s" % (tag, attributes, said))
    for what in ("@", "#", "http", "www", "evil", "admin", "deadbeef", "alert", "$", "|", "[", "GH-", "PROJ-"):
        check(what not in page.outside, "%r is outside of code: %s" % (what, said))
    check(not re.search(r"(?<![0-9a-z])[0-9a-f]{7,40}(?![0-9a-z])", page.outside), "a commit: %s" % said)
    # GitLab reads quick actions from the lines of the text.
    check(not any(line.startswith("/") for line in markdown.splitlines()), "a quick action: %s" % said)
    return page


def markdown_of(*arguments):
    status, out, err = run_tool("report", *arguments, "--format", "markdown")
    check(status in (0, 1), "%r: status %d: %r" % (arguments, status, err))
    check(len(out) <= LIMIT, "%r: %d bytes" % (arguments, len(out)))
    return out.decode()


def case_saved_reports_as_pages(directory):
    render = renderers()
    paths = sorted(glob.glob(os.path.join(FIXTURES, "nccl", "*.json.gz"))) + sorted(glob.glob(os.path.join(FIXTURES, "gpu_jobs", "*.json.gz")))[::4] + sorted(glob.glob(os.path.join(FIXTURES, "verdicts", "*.json.gz")))[::8]
    check(len(paths) > 30, "fixtures: %r" % paths)
    for path in paths:
        text = markdown_of(path)
        for name, to_html in render.items():
            page = check_page("%s by %s" % (path, name), text, to_html(text))
            summaries = len([tag for tag, _ in page.tags if tag == "summary"])
            check(page.outside.startswith(("CULPRIT", "SYMMETRIC", "HEALTHY", "UNDECIDED")) and summaries >= 3, "%s: %s" % (path, text[:2000]))
    print("rendered %d reports by %s" % (len(paths), " and ".join(render)))


def hostile_report(directory):
    """A saved report in which every string is hostile."""
    with native("threads") as fixture:
        report = json_report("attach", "--pids", fixture.pid)
    keep = {"kind", "source", "status", "stack_end", "method", "role", "origin", "code", "gil", "state", "evidence", "certainty", "host", "version_from"}
    count = iter(range(10 ** 9))

    def change(value, key=None):
        if isinstance(value, dict):
            return {name: change(member, name) for name, member in value.items()}
        if isinstance(value, list):
            return [change(member, key) for member in value]
        if not isinstance(value, str) or key in keep or re.fullmatch(r"0x[0-9a-f]+", value):
            return value
        return HOSTILE[next(count) % len(HOSTILE)]
    report["ranks"] = [dict(change(rank), host=HOSTILE[i % len(HOSTILE)]) for i, rank in enumerate(report["ranks"] * 3)]
    for i, rank in enumerate(report["ranks"]):
        rank.update(rank=i, pid=4711 + i, problems=[{"message": text, "hint": text} for text in HOSTILE], command=list(HOSTILE), python={"version": HOSTILE[i]})
        rank["threads"][0]["tid"] = 4711 + i
    report["tool"]["version"], report["captured_at"] = HOSTILE[0], HOSTILE[1]
    path = os.path.join(directory, "hostile.json")
    with open(path, "w", encoding="utf-8") as stream:
        json.dump(report, stream)
    return path


def case_the_docs_state_the_sizes(directory):
    """The table in docs/bug_reports.md. The packed column is libzstd's, whose versions differ."""
    with open(os.path.join(SOURCE, "docs", "bug_reports.md"), encoding="utf-8") as docs:
        rows = re.findall(r"^\| `([a-z-]+)` \| ([0-9,]+) \| ([0-9,]+) \| ([0-9,]+) \| ([0-9,]+) \| ([0-9,]+) \|", docs.read(), re.MULTILINE)
    check(len(rows) == 3, "rows of the table: %r" % rows)
    for name, *stated in rows:
        made = []
        for form in ("text", "markdown", "html", "folded", "json"):
            _, out, _ = run_tool("report", os.path.join(SOURCE, "fixtures", "bug_reports", name + ".json.gz"), "--format", form)
            made.append("{:,}".format(len(out)))
        check(made == stated, "%s: %s, docs/bug_reports.md states %s" % (name, " | ".join(made), " | ".join(stated)))


def case_hostile_names_do_nothing(directory):
    render = renderers()
    path = hostile_report(directory)
    for options in (("--no-redact",), ("--redact",), ("--no-redact", "--max-bytes", "4096")):
        text = markdown_of(path, *options)
        for name, to_html in render.items():
            check_page("%s by %s" % (options, name), text, to_html(text))


def case_a_report_has_no_more_bytes_than_asked_for(directory):
    path = os.path.join(FIXTURES, "nccl", "four-ranks-asleep.json.gz")
    for most in (4096, 8000, 12000):
        status, out, _ = run_tool("report", path, "--format", "markdown", "--max-bytes", most)
        check(status == 0 and len(out) <= most and out.startswith(b"**CULPRIT:** rank "), "%d: %d bytes: %r" % (most, len(out), out[:200]))
        check(b"*Left out to keep the report short" in out, "nothing is said of what is missing: %r" % out[-300:])
    status, _, err = run_tool("report", path, "--format", "markdown", "--max-bytes", "10")
    check(status == 2 and b"--max-bytes" in err, "%d %r" % (status, err))


def case_folded_stacks(directory):
    path = os.path.join(FIXTURES, "nccl", "data-loader.json.gz")
    status, out, err = run_tool("report", path, "--format", "folded")
    check((status, err) == (0, b""), "%d %r" % (status, err))
    saved = json_report("report", path)
    threads = sum(len(rank["threads"]) for rank in saved["ranks"])
    counted = 0
    for line in out.decode().splitlines():
        frames, count = line.rsplit(" ", 1)      # as FlameGraph's flamegraph.pl splits it
        counted += int(count)
        check(frames.startswith(("rank ", "child ")) and len(frames.split(";")) >= 3, line)
    check(counted == threads, "%d threads, %d in the stacks" % (threads, counted))
    status, out, _ = run_tool("report", path, "--format", "folded", "--rank", "1")
    check(status == 0 and {line.split(";")[0].split(" ")[0] for line in out.decode().splitlines()} <= {"rank", "child"} and b"rank 0;" not in out, "%r" % out[:300])


FLAMEGRAPH = "/usr/share/perl5/Devel/NYTProf/flamegraph.pl"      # Debian's libdevel-nytprof-perl has it


def case_flamegraph_opens_folded_stacks(directory):
    """FlameGraph's own script makes a picture of them that has every frame, as wide as the threads that are in it."""
    if not os.path.exists(FLAMEGRAPH) or not shutil.which("perl"):
        raise Skip("no %s (Debian's package libdevel-nytprof-perl)" % FLAMEGRAPH)
    for name in ("nccl/data-loader", "bug_reports/eight-ranks-hang", "bug_reports/four-ranks-crash", "bug_reports/two-gpus-hang"):
        folded = run_tool("report", os.path.join(FIXTURES, name + ".json.gz"), "--format", "folded")[1].decode()
        threads = {}            # by (frame, depth)
        for line in folded.splitlines():
            frames, count = line.rsplit(" ", 1)
            for depth, frame in enumerate(frames.translate(str.maketrans("<>", "()")).split(";")):      # as the script does for its SVG
                threads[frame, depth] = threads.get((frame, depth), 0) + int(count)
        done = subprocess.run(["perl", FLAMEGRAPH, "--minwidth=0", "--countname=threads"], input=folded.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        check(done.returncode == 0 and done.stderr == b"", "%s: %d %r" % (name, done.returncode, done.stderr[:500]))
        drawn = {}
        for title in xml.etree.ElementTree.fromstring(done.stdout).iter("{http://www.w3.org/2000/svg}title"):
            frame, count = re.fullmatch(r"(.*) \(([\d,]+) threads, [\d.]+%\)", title.text).groups()
            drawn[frame] = drawn.get(frame, 0) + int(count.replace(",", ""))
        meant = {"all": sum(count for (_, depth), count in threads.items() if depth == 0)}
        for (frame, _), count in threads.items():
            meant[frame] = meant.get(frame, 0) + count
        check(drawn == meant, "%s: drawn otherwise: %r" % (name, sorted(set(drawn.items()) ^ set(meant.items()))[:6]))
        print("%s: %d frames, %d bytes folded, %d drawn" % (name, len(meant), len(folded), len(done.stdout)))


if __name__ == "__main__":
    cases.run(globals(), "markdown")
