"""The report as a page, in a real browser: what it shows, its controls and keys, and what hostile names and the page itself can do there."""
import base64
import glob
import gzip
import hashlib
import json
import os
import re
import subprocess
import time

import cases
from chromium import Chromium
from command_line import SOURCE, native
from markdown import HOSTILE, hostile_report
from processes import Attempts, check, run_tool, wait_until

FIXTURES = os.path.join(SOURCE, "fixtures")
DATA_LOADER = os.path.join(FIXTURES, "nccl", "data-loader.json.gz")
LIMIT = 10_000_000


def page_of(directory, *arguments, name="report.html", expect=(0, 1)):
    path = os.path.join(directory, name)
    status, out, err = run_tool(*arguments, "--format", "html", "-o", path)
    check(status in expect and out == b"", "%r: status %d: %r %r" % (arguments, status, out[:200], err))
    return path


def opened(browser, path, fragment=""):
    """Opens a page, and checks that it complains of nothing and has asked for nothing but itself."""
    browser.requests, browser.errors = [], []
    url = "file://" + path + fragment
    browser.open("about:blank")
    browser.open(url)
    check(browser.run("document.documentElement.dataset.ready") == "yes", "the page has not started: %r" % browser.errors)
    check_quiet(browser, path)


def check_quiet(browser, path):
    check(not browser.errors, "the console says: %r" % browser.errors)
    others = [url for url in browser.requests if not url.startswith(("file://" + path, "about:blank"))]
    check(not others, "requests leave: %r" % others)


def text_of(browser, selector):
    return browser.run("(e => e && e.innerText)(document.querySelector(%s))" % json.dumps(selector))


def count_of(browser, selector):
    return browser.run("document.querySelectorAll(%s).length" % json.dumps(selector))


def search(browser, words):
    browser.run("(f => { f.value = %s; f.dispatchEvent(new Event('input')); })(document.getElementById('search'))" % json.dumps(words))


def choose(browser, name, value):
    browser.run("(f => { f.value = %s; f.dispatchEvent(new Event('input')); })(document.getElementById('filter-%s'))" % (json.dumps(value), name))


def case_the_policy_has_the_hashes_of_script_and_style(directory):
    with open(page_of(directory, "report", DATA_LOADER), encoding="utf-8") as stream:
        page = stream.read()
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)[1]
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        sources = re.findall(r"<%s>(.*?)</%s>" % (tag, tag), page, re.S)
        check(len(sources) == 1, "%d of <%s>" % (len(sources), tag))
        digest = base64.b64encode(hashlib.sha256(sources[0].encode()).digest()).decode()
        check("%s 'sha256-%s'" % (directive, digest) in policy, "%s: %s" % (policy, digest))
    check(policy.startswith("default-src 'none';"), policy)


def in_browser_of_live_ranks_cores_and_saved_reports(directory, browser):
    with native("threads") as fixture:
        live = page_of(directory, "attach", "--pids", fixture.pid)
        core = os.path.join(directory, "core")
        subprocess.run(["gcore", "-o", core, str(fixture.pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        dead = page_of(directory, "core", "%s.%d" % (core, fixture.pid), name="core.html")
        fixture.check_unharmed()
    status, out, err = run_tool("report", DATA_LOADER, "--format", "html")
    check(status == 0 and err == b"" and out.startswith(b"<!DOCTYPE html>") and out.endswith(b"</html>\n"), "%d %r" % (status, err))
    for path in (live, dead):
        opened(browser, path)
        check(count_of(browser, "#map [role=option]") == 1 and "thread" in text_of(browser, "#count"), text_of(browser, "body")[:1000])


def case_names_are_pseudonyms_unless_asked_for(directory):
    with native("threads", env=dict(os.environ, HOME="/home/alicia")) as fixture:
        for options, shown in (((), False), (("--no-redact",), True)):
            with open(page_of(directory, "attach", "--pids", fixture.pid, *options), encoding="utf-8") as stream:
                page = stream.read()
            check((os.uname().nodename in page) == shown, "%r: the host's name" % (options,))
            check(('"redacted": true' in page) != shown, "%r: what the page says of it" % (options,))


def in_browser_verdict_tree_and_details(directory, browser):
    path = page_of(directory, "report", DATA_LOADER, "--no-redact")
    opened(browser, path)
    check(text_of(browser, "#verdict h1").startswith("CULPRIT rank 1 is in its data pipeline"), text_of(browser, "#verdict"))
    check(count_of(browser, "#verdict .chain li") >= 3, text_of(browser, "#verdict"))
    check(browser.run("document.title").startswith("culprit: rank 1"), browser.run("document.title"))
    check(count_of(browser, "#map [role=option]") == 4 and count_of(browser, "#map .suspect") == 1, "the map")
    # The branches: all ranks, then rank 1, the suspect, then the others.
    branches = browser.run("[...document.querySelectorAll('#view .branch > .head .ranks')].map(e => e.textContent)")
    check(branches[:3] == ["0-3", "1", "0,2-3"], "%r" % branches)
    check("ShardDataset.read_shard" in text_of(browser, "#view") and "blocked in read" in text_of(browser, "#view"), text_of(browser, "#view"))
    # A click on the arrow closes a branch, and opens it again; the frames of a run that is folded appear on a click.
    browser.click("#view .branch .arrow")
    check(browser.run("document.querySelector('#view .branch').getAttribute('aria-expanded')") == "false" and "read_shard" not in text_of(browser, "#view"), "it is not closed")
    browser.click("#view .branch .arrow")
    check("read_shard" in text_of(browser, "#view"), "it is not open again")
    before = count_of(browser, "#view .frame")
    browser.click("#view .fold")
    check(count_of(browser, "#view .frame") > before + 1, "no frames have appeared")
    # Details of a branch, of a rank on the map, and of a thread.
    browser.click("#view .branch .branch > .head .ranks")
    check(text_of(browser, "#detail h2").startswith("1 rank"), text_of(browser, "#detail"))
    check("_Py_read" in text_of(browser, "#detail .stack"), text_of(browser, "#detail"))
    browser.click("#map .suspect")
    check(text_of(browser, "#detail h2").startswith("rank 1"), text_of(browser, "#detail h2"))
    check(count_of(browser, "#detail details.thread") == 13, "the threads of rank 1")
    browser.click("#detail details.thread:nth-of-type(2) summary")
    wait_until(lambda: count_of(browser, "#detail details.thread:nth-of-type(2) .frame") > 2, "the stack of a thread that was opened")
    check_quiet(browser, path)


def in_browser_search_and_filters(directory, browser):
    path = page_of(directory, "report", DATA_LOADER, "--no-redact")
    opened(browser, path)
    check(text_of(browser, "#count").startswith("53 of 53 threads, 4 of 4"), text_of(browser, "#count"))
    search(browser, "READ_shard")
    check(text_of(browser, "#count").startswith("1 of 53 threads, 1 of 4"), text_of(browser, "#count"))
    check("read_shard" in browser.run("[...document.querySelectorAll('#view mark')].map(e => e.textContent)"), "nothing is marked")
    check(count_of(browser, "#map .dim") == 3, "the map shows others")
    search(browser, "no such function anywhere")
    check(text_of(browser, "#count").startswith("0 of 53") and "No thread passes" in text_of(browser, "#view"), text_of(browser, "#view"))
    search(browser, "")
    choose(browser, "role", "autograd")
    check(text_of(browser, "#count").startswith("16 of 53 threads, 4 of 4"), text_of(browser, "#count"))
    choose(browser, "ranks", "0,2-3")
    check(text_of(browser, "#count").startswith("12 of 53 threads, 3 of 4"), text_of(browser, "#count"))
    choose(browser, "role", "")
    choose(browser, "state", "R")
    check(text_of(browser, "#count").startswith("3 of 53 threads, 3 of 4"), text_of(browser, "#count"))
    # What is chosen is in the address, and comes back with it.
    fragment = browser.run("location.hash")
    opened(browser, path, fragment)
    check(text_of(browser, "#count").startswith("3 of 53 threads, 3 of 4"), "%s: %s" % (fragment, text_of(browser, "#count")))
    browser.click("#clear")
    check(text_of(browser, "#count").startswith("53 of 53") and browser.run("location.hash") == "", browser.run("location.hash"))
    # A link within the page (a changed address) leads to what it says, and so does the one without anything.
    browser.run("location.hash = '#view=ranks&role=autograd&rank=2'; 0")
    wait_until(lambda: (text_of(browser, "#detail h2") or "").startswith("rank 2"), "the address to take effect")
    check(count_of(browser, "#view [role=grid]") == 1 and text_of(browser, "#count").startswith("16 of 53"), text_of(browser, "#count"))
    browser.run("location.hash = ''; 0")
    wait_until(lambda: browser.run("document.getElementById('detail').hidden") and count_of(browser, "#view [role=tree]") == 1, "the empty address to take effect")
    # A host is a filter where there are several.
    check(browser.run("document.getElementById('filter-host').parentElement.hidden"), "one host is a choice of none")


def in_browser_two_hosts_can_be_distinguished(directory, browser):
    with gzip.open(DATA_LOADER) as stream:
        report = json.load(stream)
    for rank in report["ranks"][2:]:
        rank["host"] = "node-b"
    saved = os.path.join(directory, "two.json")
    with open(saved, "w", encoding="utf-8") as stream:
        json.dump(report, stream)
    path = page_of(directory, "report", saved, "--no-redact")
    opened(browser, path)
    choose(browser, "host", "node-b")
    check(text_of(browser, "#count").startswith("26 of 53 threads, 2 of 4"), text_of(browser, "#count"))


def in_browser_differences_between_ranks(directory, browser):
    with gzip.open(DATA_LOADER) as stream:
        report = json.load(stream)
    for rank in report["ranks"]:
        rank["environment"] = {"variables": {"NCCL_DEBUG": "INFO"}, "kernel": "6.8.0"}
        rank["modules"] = [{"name": "NCCL", "path": "/v/libnccl.so.2", "build_id": "aa11", "version": "2.27.3" if rank["rank"] == 2 else "2.28.9", "version_from": "text"}]
    saved = os.path.join(directory, "differ.json")
    with open(saved, "w", encoding="utf-8") as stream:
        json.dump(report, stream)
    path = page_of(directory, "report", saved, "--no-redact")
    opened(browser, path)
    check("differs: NCCL 2.27.3 on rank 2" in text_of(browser, "#verdict"), text_of(browser, "#verdict"))
    browser.click("#tab-differences")
    shown = text_of(browser, "#view")
    check("concerns communication" in shown and "0-1,3: 2.28.9" in shown, shown)
    browser.click("#view .list .link")
    check(text_of(browser, "#detail h2").startswith("rank 2"), text_of(browser, "#detail"))
    check_quiet(browser, path)


def in_browser_every_view_by_keys(directory, browser):
    path = page_of(directory, "report", os.path.join(FIXTURES, "gpu_jobs", "loader-workers-with-gpus.json.gz"), "--no-redact")
    opened(browser, path)
    expected = {"1": "Main threads", "2": "all threads", "3": "rank 1 in loader", "4": "What it does", "5": "Where", "6": "NVIDIA H200", "7": "CUDA debugger API", "8": "How the report was taken"}
    for key, words in expected.items():
        browser.key(key)
        check(words in browser.run("document.getElementById('view').textContent"), "view %s lacks %r: %s" % (key, words, text_of(browser, "#view")[:500]))
    check(browser.run("document.querySelector('[role=tab][aria-selected=true]').textContent") == "About", "the last tab is not chosen")
    browser.key("/")
    check(browser.run("document.activeElement.id") == "search", "/ does not lead to the search")
    browser.key("1")   # a letter of the search now
    check(browser.run("document.getElementById('search').value") == "1", "the search has no letter")
    browser.key("Escape")
    browser.key("x")
    check(browser.run("document.getElementById('search').value") == "", "x does not clear")
    browser.key("?")
    check(browser.run("document.getElementById('help').open"), "no help")
    browser.key("Escape")
    check(not browser.run("document.getElementById('help').open"), "the help stays")
    check_quiet(browser, path)


def in_browser_the_tree_flame_graph_and_lists_by_keys(directory, browser):
    path = page_of(directory, "report", DATA_LOADER, "--no-redact")
    focus = "document.activeElement.getAttribute('aria-label')"
    opened(browser, path)
    browser.run("document.querySelector('#view [role=treeitem]').focus()")
    check(browser.run(focus).startswith("Main threads"), browser.run(focus))
    browser.key("ArrowDown")
    check(browser.run(focus).startswith("0-3 (4 ranks)"), browser.run(focus))
    browser.key("ArrowLeft")
    check(browser.run("document.activeElement.getAttribute('aria-expanded')") == "false", "not closed")
    browser.key("ArrowRight")
    browser.key("ArrowRight")
    check(browser.run(focus).startswith("1 (1 rank), odd, suspect"), browser.run(focus))
    browser.key("Enter")
    check(text_of(browser, "#detail h2").startswith("1 rank"), text_of(browser, "#detail"))
    browser.key("Escape")
    check(browser.run("document.getElementById('detail').hidden"), "the details stay")
    browser.key("e")
    check(count_of(browser, "#view [aria-expanded=false]") == 0, "not all is open")
    browser.key("c")
    check(count_of(browser, "#view [aria-expanded=true]") == 0, "not all is closed")
    browser.key("2")
    browser.run("document.querySelector('#view [tabindex=\"0\"]').focus()")
    check(browser.run(focus).startswith("main, 4 threads"), browser.run(focus))
    browser.key("ArrowDown")
    check(browser.run(focus).startswith("<module>, 4 threads"), browser.run(focus))
    browser.key("ArrowUp")
    browser.key("ArrowUp")
    browser.key("Enter")
    check(browser.run(focus).startswith("all threads, 53 threads"), browser.run(focus))
    check("nccl-watchdog" in text_of(browser, "#view .flame"), "the roles are not in it")
    browser.key("5")
    browser.run("document.querySelector('#view [role=grid]').focus()")
    browser.key("End")
    check(browser.run("document.querySelector('#view [aria-selected=true]').getAttribute('aria-rowindex')") == "54", "not at the end")
    browser.key("Enter")
    check("rank 3" in text_of(browser, "#detail"), text_of(browser, "#detail"))
    browser.run("[...document.querySelectorAll('#view .sort')].find(b => b.textContent === 'Role').click()")
    check(browser.run("document.querySelector('#view .rows .row').children[3].textContent") == "main", "not sorted by role")
    check_quiet(browser, path)


def in_browser_light_and_dark(directory, browser):
    path = page_of(directory, "report", DATA_LOADER)
    back = "getComputedStyle(document.body).backgroundColor"
    browser.media("dark")
    opened(browser, path)
    dark = browser.run(back)
    browser.media("light")
    wait_until(lambda: browser.run(back) != dark, "the page to be light, as the system is now")
    light = browser.run(back)
    browser.click("#theme")
    check(browser.run(back) == dark, "the button does not change it")
    browser.key("t")
    check(browser.run(back) == light, "the key does not change it")


def case_saved_reports_as_pages(directory):
    """Every view of many reports, with everything open, and the details of each rank: nothing complains."""
    paths = sorted(glob.glob(os.path.join(FIXTURES, "nccl", "*.json.gz")))[::12] + sorted(glob.glob(os.path.join(FIXTURES, "gpu_jobs", "*.json.gz")))[::24] + sorted(glob.glob(os.path.join(FIXTURES, "verdicts", "*.json.gz")))[::20]
    check(len(paths) > 10, "fixtures: %r" % paths)
    with Chromium() as browser:
        for saved in paths:
            path = page_of(directory, "report", saved, "--no-redact")
            opened(browser, path)
            with gzip.open(saved) as stream:
                ranks = json.load(stream)["ranks"]
            threads = sum(len(rank["threads"]) for rank in ranks)
            check(text_of(browser, "#count").startswith("%d of %d thread" % (threads, threads)), "%s: %s" % (saved, text_of(browser, "#count")))
            browser.run("for (const name of available()) { chooseView(name); setAllOpen(byId('view'), true); } report.ranks.forEach((_, rank) => select({type: 'rank', rank})); "
                        "report.waits.groups.forEach(group => select({type: 'wait', group})); for (let thread = 0; thread < threads.count; thread++) select({type: 'thread', thread}); fillPrint()")
            check(browser.errors == [], "%s: %r" % (saved, browser.errors))
            # All frames of all stacks are there, in their order.
            stacks = browser.run("report.ranks.map((_, r) => Array.from({length: threads.first[r + 1] - threads.first[r]}, (_, i) => framesOf(kindOf(threads.first[r] + i)[KIND.STACK]).filter(f => frameKind(f) !== 'gap').length))")
            check(stacks == [[len(thread["frames"]) for thread in rank["threads"]] for rank in ranks], "%s: %r" % (saved, stacks))
    print("opened %d pages" % len(paths))


def in_browser_hostile_names_are_text(directory, browser):
    path = page_of(directory, "report", hostile_report(directory), "--no-redact")
    browser.run("0")
    opened(browser, path)
    for view in browser.run("available()"):
        browser.run("chooseView(%s); setAllOpen(document.getElementById('view'), true)" % json.dumps(view))
        for selector, count in (("script", 2), ("img", 0), ("iframe", 0), ("a", 0), ("meta", 4), ("style", 1)):
            check(count_of(browser, selector) == count, "%s: %d of <%s>" % (view, count_of(browser, selector), selector))
    for words in HOSTILE[:2] + HOSTILE[7:8]:
        check(words.split("\n")[0] in browser.run("JSON.stringify(report.strings)").encode().decode("unicode_escape", "replace") or words in browser.run("report.strings.join(' ')"), "%r is not in the data" % words)
    browser.run("select({type: 'thread', thread: 0}); chooseView('tree'); setAllOpen(document.getElementById('view'), true)")
    check("<script>alert(1)</script>" in text_of(browser, "body"), "the name is not shown as it is: %s" % text_of(browser, "body")[:3000])
    search(browser, "<script>alert")
    check(count_of(browser, "mark") > 0, "it is not found")
    check_quiet(browser, path)


def in_browser_the_policy_lets_nothing_else_run_or_load(directory, browser):
    path = page_of(directory, "report", DATA_LOADER)
    opened(browser, path)
    browser.run("window.broken = []; addEventListener('securitypolicyviolation', e => broken.push(e.effectiveDirective)); 0")
    browser.run("{ const s = document.createElement('script'); try { s.textContent = 'window.ran = 1'; } catch (e) { window.refused = 1; } document.body.append(s); } 0")
    browser.run("{ const i = new Image(); i.src = 'http://rankstacks.invalid/x.png'; document.body.append(i); } 0")
    browser.run("fetch('http://rankstacks.invalid/y').catch(() => 0)")
    check(browser.run("(() => { try { document.body.innerHTML = '<b>x</b>'; return 'it is HTML'; } catch (e) { return 'refused'; } })()") == "refused", "a text became HTML")
    check(browser.run("window.ran") is None, "a script has run")
    browser.run("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    broken = browser.run("broken")
    for directive in ("img-src", "connect-src"):
        check(directive in broken, "%s is not refused: %r" % (directive, broken))


def in_browser_without_scripts_the_text_report_is_shown(directory, browser):
    path = page_of(directory, "report", DATA_LOADER, "--no-redact")
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.open("file://" + path)
    document = browser.call("DOM.getDocument", depth=-1)["root"]["nodeId"]
    shown = browser.call("DOM.getOuterHTML", nodeId=browser.call("DOM.querySelector", nodeId=document, selector="noscript pre")["nodeId"])["outerHTML"]
    check("CULPRIT: rank 1 is in its data pipeline" in shown and "Main threads: 2 different stacks" in shown, shown)


def in_browser_on_paper(directory, browser):
    path = page_of(directory, "report", DATA_LOADER, "--no-redact")
    browser.media("dark")
    opened(browser, path)
    browser.run("dispatchEvent(new Event('beforeprint')); 0")
    printed = browser.run("document.getElementById('print').textContent")
    for words in ("Merged stacks", "ShardDataset.read_shard", "rasThreadMain", "Waits", "for the GPU", "How the report was taken"):
        check(words in printed, "%r is not printed: %s" % (words, printed[:2000]))
    browser.run("dispatchEvent(new Event('afterprint')); update()")
    check(browser.run("document.getElementById('print').textContent") == "" and count_of(browser, "#view [aria-expanded=false]") > 3, "the page is not as it was before")
    browser.run("dispatchEvent(new Event('beforeprint')); 0")
    browser.media("dark", "print")
    check(browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "the paper is not white")
    check(browser.run("getComputedStyle(document.querySelector('.controls')).display") == "none", "controls are printed")
    browser.media("light")
    pdf = base64.b64decode(browser.call("Page.printToPDF")["data"])
    check(pdf.startswith(b"%PDF") and len(pdf) > 10_000, "%d bytes" % len(pdf))


def in_browser_everything_has_an_accessible_name(directory, browser):
    path = page_of(directory, "report", os.path.join(FIXTURES, "gpu_jobs", "loader-workers-with-gpus.json.gz"))
    opened(browser, path)
    browser.call("Accessibility.enable")
    for view in browser.run("available()"):
        browser.run("chooseView(%s)" % json.dumps(view))
        nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
        roles = {}
        for node in nodes:
            role = node.get("role", {}).get("value")
            if node.get("ignored") or role not in ("button", "treeitem", "tree", "option", "listbox", "tab", "tablist", "tabpanel", "grid", "textbox", "searchbox", "combobox", "complementary", "region"):
                continue
            roles[role] = roles.get(role, 0) + 1
            check(node.get("name", {}).get("value"), "%s: a %s without a name: %r" % (view, role, node))
        check({"button", "tab", "tablist", "option", "searchbox", "combobox"} <= set(roles), "%s: %r" % (view, roles))


def case_what_a_browser_shows(directory):
    """All in_browser_NAME(directory, browser), each with a page and a directory of its own, in one browser, whose start takes a second."""
    attempts = Attempts()
    with Chromium() as browser:
        for name, part in [(name, part) for name, part in globals().items() if name.startswith("in_browser_")]:
            place = os.path.join(directory, name)
            os.mkdir(place)
            browser.new_page()
            attempts.make(name, lambda part=part, place=place: part(place, browser))
    attempts.finish()


def many_ranks(path, ranks, threads, all_differ=False):
    """The saved report of a data loader that hangs, with the waiting rank repeated: other numbers, pids, addresses. `all_differ`: the main thread of each is at a line of its own."""
    with gzip.open(DATA_LOADER) as stream:
        report = json.load(stream)
    seeds = report.pop("ranks")
    report.pop("nccl", None)

    def text_of_thread(thread, rank, number, at_own_line):
        if at_own_line:
            thread = dict(thread, frames=[dict(frame, line=1000 + rank) if frame["kind"] == "python" else frame for frame in thread["frames"]])
        if at_own_line or number not in made:
            made[number] = json.dumps(dict(thread, tid=-1, cpu_ms=-1))
        return made[number].replace('"tid": -1', '"tid": %d' % (10_000 + 100 * (rank % 8) + number % 100)).replace('"cpu_ms": -1', '"cpu_ms": %d' % (10 * (rank + number % 100))).replace('"address": "0x', '"address": "0x%x' % (rank + 1))

    made = {}     # the text of a thread of a seed, by the numbers of both
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(report)[:-1] + ', "ranks": [')
        for r in range(ranks):
            number = r if r < len(seeds) else 0
            seed = seeds[number]
            rank = dict(seed, rank=r, world_size=ranks, local_rank=r % 8, host="node-%03d" % (r // 8), pid=10_000 + 100 * (r % 8), threads=[])
            texts = [text_of_thread(seed["threads"][t % len(seed["threads"])], r, 100 * number + t, all_differ and t == 0) for t in range(threads)]
            stream.write((", " if r else "") + json.dumps(rank).replace('"threads": []', '"threads": [%s]' % ", ".join(texts)))
        stream.write("]}\n")


FRAME = "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"


def load_times(browser, path, count=3):
    opened(browser, path)                       # the first page also starts the browser's processes
    times = []
    for _ in range(count):
        browser.open("about:blank")
        begin = time.monotonic()
        browser.open("file://" + path)
        browser.run(FRAME)
        times.append(time.monotonic() - begin)
    return times


def search_times(browser):
    """{view: (milliseconds of each search, from the key to the next picture; processor time of the page for one, on average)}"""
    browser.call("Performance.enable", timeDomain="threadTicks")

    def processor():
        return next(metric["value"] for metric in browser.call("Performance.getMetrics")["metrics"] if metric["name"] == "TaskDuration") * 1000
    times = {}
    words = ["r", "re", "read", "read_shard", "nccl", "node-101", "zzz", ""]
    for view in browser.run("available()"):
        browser.run("chooseView(%s)" % json.dumps(view))
        before = processor()
        waited = browser.run("(async () => { const field = document.getElementById('search'), times = []; for (const words of %s) "
                             "{ const begin = performance.now(); field.value = words; field.dispatchEvent(new Event('input')); await %s; times.push(performance.now() - begin); } return times; })()" % (json.dumps(words), FRAME))
        times[view] = waited, (processor() - before) / len(words)
    browser.call("Performance.disable")
    return times


def measured(directory, browser, what, **options):
    saved = os.path.join(directory, "many.json")
    many_ranks(saved, 1024, 30, **options)
    begin = time.monotonic()
    path = page_of(directory, "report", saved, "--no-redact", name=what.replace(" ", "-") + ".html")
    made = time.monotonic() - begin
    size, whole = os.path.getsize(path), os.path.getsize(saved)
    os.remove(saved)
    check(size < LIMIT, "%d bytes" % size)
    loads, searches = load_times(browser, path), search_times(browser)
    print("%s: saved report %.1f MB, page %.2f MB, made in %.1f s; opened in %.2f s (best of %d; worst %.2f)" % (what, whole / 1e6, size / 1e6, made, min(loads), len(loads), max(loads)))
    for view, (times, processor) in searches.items():
        print("    a search in %-8s median %3.0f ms, worst %3.0f ms; processor time %.0f ms" % (view, sorted(times)[len(times) // 2], max(times), processor))
    check(text_of(browser, "#count").startswith("30,720 of 30,720 threads, 1,024 of 1,024"), text_of(browser, "#count"))
    check(count_of(browser, "#map [role=option]") == 1024, "the map")
    check_quiet(browser, path)
    return path


def case_1024_ranks_of_30_threads(directory):
    with Chromium() as browser:
        path = measured(directory, browser, "alike")
        check(text_of(browser, "#verdict h1").startswith("CULPRIT rank 1 "), text_of(browser, "#verdict"))
        search(browser, "read_shard")
        check(text_of(browser, "#count").endswith("1 of 1,024 processes"), text_of(browser, "#count"))
        search(browser, "")
        choose(browser, "host", "node-101")
        check(text_of(browser, "#count").startswith("240 of 30,720 threads, 8 of 1,024"), text_of(browser, "#count"))
        choose(browser, "host", "")
        browser.run("chooseView('threads')")
        check(count_of(browser, "#view .rows .row") < 200, "all rows of a long list are in the page")
        browser.run("(g => { g.scrollTop = g.scrollHeight; g.dispatchEvent(new Event('scroll')); })(document.querySelector('#view .grid'))")
        check(browser.run("document.querySelector('#view .rows .row:last-child').getAttribute('aria-rowindex')") == "30721", "the last row")
        check_quiet(browser, path)


def case_1024_ranks_that_all_differ(directory):
    with Chromium() as browser:
        path = measured(directory, browser, "all differ", all_differ=True)
        browser.run("chooseView('tree')")
        check(0 < count_of(browser, "#view .branch") <= 110, "%d branches" % count_of(browser, "#view .branch"))
        browser.run("[...document.querySelectorAll('#view .fold')].find(b => b.textContent.includes('more branches')).click()")
        check(count_of(browser, "#view .branch") > 150, "%d branches" % count_of(browser, "#view .branch"))
        check_quiet(browser, path)


def case_17000_ranks(directory):
    """More than cells of a map and numbers of threads are for: a cell is several ranks, and shows the one that matters."""
    saved = os.path.join(directory, "saved.json")
    many_ranks(saved, 17_000, 2)
    path = page_of(directory, "report", saved, "--no-redact")
    os.remove(saved)
    size = os.path.getsize(path)
    check(size < 3_000_000, "%d bytes" % size)
    with Chromium() as browser:
        opened(browser, path)
        cells = count_of(browser, "#map [role=option]")
        check(cells == 3400, "the map has %d cells" % cells)
        first = browser.run("document.querySelector('#map [role=option]').getAttribute('aria-label')")
        check(first == "rank 1, one of 0-4", first)
        browser.run("document.querySelector('#map [role=option]').click()")
        check(text_of(browser, "#detail h2").startswith("rank 1"), text_of(browser, "#detail"))
        search(browser, "16999")
        check(text_of(browser, "#count").endswith("1 of 17,000 processes"), text_of(browser, "#count"))
        browser.run("chooseView('ranks')")
        check(text_of(browser, "#view .rows .row").startswith("16999"), text_of(browser, "#view .rows .row"))
        check_quiet(browser, path)


if __name__ == "__main__":
    cases.run(globals(), "html_page")
