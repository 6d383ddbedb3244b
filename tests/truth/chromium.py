"""A headless Chromium, driven by the DevTools protocol over two pipes (--remote-debugging-pipe): messages of JSON, each ended by a zero byte."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

from processes import DEADLINE, Failure, Skip, check


class Chromium:
    """A browser with one page, which reaches no host but `reaches`. `requests`: the addresses that the page has asked for; `errors`: what its console and its scripts have complained of."""

    def __init__(self, width=1400, height=900, reaches=""):
        path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if not path:
            raise Skip("no chromium is installed (Debian's package chromium)")
        self.requests, self.errors = [], []
        self._number, self._text, self._answers, self._events = 0, b"", {}, []
        self._size, self._target = (width, height), None
        self._profile = tempfile.mkdtemp(prefix="rankstacks-chromium-")
        for_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()

        def as_descriptors_3_and_4():
            os.dup2(for_browser, 30)
            os.dup2(from_browser, 31)
            os.dup2(30, 3)
            os.dup2(31, 4)
            os.set_inheritable(3, True)
            os.set_inheritable(4, True)
        # Nothing outside is asked for anything: no updates, no lists of components. Root in a container has no sandbox.
        self._process = subprocess.Popen(
            [path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--user-data-dir=" + self._profile, "--no-first-run", "--disable-extensions", "--disable-ipc-flooding-protection",
             "--disable-background-networking", "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND" + (", EXCLUDE " + reaches if reaches else ""), "--hide-scrollbars", "--window-size=%d,%d" % (width, height),
             "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=as_descriptors_3_and_4, close_fds=False, start_new_session=True)
        os.close(for_browser)
        os.close(from_browser)
        try:
            self._attach(next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")["targetId"])
        except BaseException:
            self.end()
            raise

    _session = None

    def _attach(self, target):
        self._target = target
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")
        width, height = self._size
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def new_page(self):
        """Another page in the place of this one: with the state that the page of a new browser has, and without the time that its start takes."""
        before, self._session = self._target, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.call("Target.closeTarget", targetId=before)
        self._attach(target)
        self.requests, self.errors = [], []

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.end()

    def end(self):
        for descriptor in (self._write, self._read):
            os.close(descriptor)          # the browser ends when the pipe is closed
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def _message(self, deadline):
        while b"\0" not in self._text:
            readable, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            check(readable, "Chromium does not answer")
            more = os.read(self._read, 1 << 20)
            check(more, "Chromium has ended: status %r" % self._process.poll())
            self._text += more
        line, self._text = self._text.split(b"\0", 1)
        return json.loads(line)

    def _take(self, message):
        if "id" in message:
            self._answers[message["id"]] = message
            return
        name, values = message["method"], message["params"]
        self._events.append(name)
        if name == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif name == "Runtime.exceptionThrown":
            details = values["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif name == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.errors.append(repr(values["args"]))
        elif name == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.errors.append(values["entry"]["text"])

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data):]
        deadline = time.monotonic() + 2 * DEADLINE
        while self._number not in self._answers:
            self._take(self._message(deadline))
        answer = self._answers.pop(self._number)
        if "error" in answer:
            raise Failure("%s: %r" % (method, answer["error"]))
        return answer["result"]

    def open(self, url):
        """Loads a page; returns when its load event has come."""
        self._events = []
        answer = self.call("Page.navigate", url=url)
        check("errorText" not in answer, "%s: %s" % (url, answer.get("errorText")))
        deadline = time.monotonic() + 2 * DEADLINE
        while "Page.loadEventFired" not in self._events:
            self._take(self._message(deadline))

    def run(self, script):
        """The value of an expression in the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in answer:
            raise Failure("%s: %s" % (script, answer["exceptionDetails"].get("exception", {}).get("description")))
        return answer["result"].get("value")

    def key(self, key, text=None):
        """Presses a key: "Enter", "ArrowDown", "/"."""
        codes = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39, " ": 32, "Tab": 9, "Home": 36, "End": 35}
        text = text if text is not None else key if len(key) == 1 else "\r" if key == "Enter" else ""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=codes.get(key, ord(key.upper()) if len(key) == 1 else 0))
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=codes.get(key, 0))

    def click(self, selector):
        """A click of the mouse at the middle of the first element that matches."""
        place = self.run("(() => { const e = document.querySelector(%s); e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()" % json.dumps(selector))
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def media(self, theme="light", medium=""):
        self.call("Emulation.setEmulatedMedia", media=medium, features=[{"name": "prefers-color-scheme", "value": theme}])

    def screenshot(self, path):
        with open(path, "wb") as stream:
            stream.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
