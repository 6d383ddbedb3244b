"""A Kubernetes API server of a test's own for the real kubectl: lists pods, and runs commands in them, which are nodes in namespaces (nodes.py).
It speaks both protocols of `kubectl exec`: WebSocket (v5.channel.k8s.io, kubectl 1.30 and newer) and SPDY/3.1 (v4.channel.k8s.io, all versions)."""
import base64
import hashlib
import http.server
import json
import os
import select
import shutil
import struct
import subprocess
import threading
import time
import urllib.parse
import zlib

import nodes
from processes import Skip

STDIN, STDOUT, STDERR, ERROR = range(4)
CLOSE = 255                                     # of v5: the next byte names the channel that has ended
NAMES = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR}
MAX_MESSAGE = 1 << 24


def counted(words):
    return b"".join(struct.pack(">I", len(word)) + word.encode() for word in words)


# What SPDY's headers are compressed with: https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1, 2.6.10.1.
DICTIONARY = counted((
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow authorization cache-control connection "
    "content-base content-encoding content-language content-length content-location content-md5 content-range content-type date etag expect expires from host "
    "if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma proxy-authenticate proxy-authorization "
    "range referer retry-after server te trailer transfer-encoding upgrade user-agent vary via warning www-authenticate method get status").split() + ["200 OK"]
    + "version HTTP/1.1 url public set-cookie keep-alive origin".split()) + (
        b"100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative Information204 No Content"
        b"301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
        b"Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
        b"application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.")
assert zlib.adler32(DICTIONARY) == 0xe3c6a7c2


def exactly(source, size):
    data = source.read(size)
    if len(data) < size:
        raise EOFError
    return data


class WebSocket:
    """RFC 6455, with one channel for each stream: the first byte of each message."""

    def __init__(self, handler):
        self.source, self.sink, self.lock = handler.rfile, handler.wfile, threading.Lock()
        key = handler.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        handler.send_response_only(101, "Switching Protocols")
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
                            ("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())):
            handler.send_header(name, value)
        handler.end_headers()

    def _write(self, kind, data):
        size = struct.pack(">B", len(data)) if len(data) < 126 else struct.pack(">BH", 126, len(data)) if len(data) < 65536 else struct.pack(">BQ", 127, len(data))
        with self.lock:
            self.sink.write(bytes([0x80 | kind]) + size + data)

    def send(self, channel, data):
        self._write(2, bytes([channel]) + data)

    def finish(self):
        self._write(8, struct.pack(">H", 1000))

    def ready(self, wanted):
        # kubectl 1.32 reads before it has made its streams, and gives up ("closed all streams") if the command has ended by then. A container's
        # runtime takes longer than that.
        time.sleep(0.3)

    def input(self):
        """(channel, data), data None at its end; until the connection ends."""
        message = b""
        while True:
            kind, size = exactly(self.source, 2)
            size &= 127
            if size > 125:
                size = struct.unpack(">H" if size == 126 else ">Q", exactly(self.source, 2 if size == 126 else 8))[0]
            if size > MAX_MESSAGE:
                raise EOFError
            mask = exactly(self.source, 4)
            data = exactly(self.source, size)
            key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
            data = (int.from_bytes(data, "big") ^ key).to_bytes(size, "big")
            if kind & 15 == 8:
                return
            if kind & 15 == 9:
                self._write(10, data)
            elif kind & 15 < 3:
                message += data
                if kind & 0x80 and message:
                    yield (message[1], None) if message[0] == CLOSE else (message[0], message[1:])
                    message = b""


class Spdy:
    """SPDY/3.1 as far as `kubectl exec` needs it: one stream for each channel, without flow control, which kubectl does not do either."""

    def __init__(self, handler):
        self.source, self.sink, self.lock = handler.rfile, handler.wfile, threading.Lock()
        self.unpacked, self.packed = zlib.decompressobj(zdict=DICTIONARY), zlib.compressobj(zdict=DICTIONARY)
        self.streams, self.channels, self.early = {}, {}, []
        handler.send_response_only(101, "Switching Protocols")
        for name, value in (("Upgrade", "SPDY/3.1"), ("Connection", "Upgrade"), ("X-Stream-Protocol-Version", "v4.channel.k8s.io")):
            handler.send_header(name, value)
        handler.end_headers()

    def _write(self, data):
        with self.lock:
            self.sink.write(data)

    def send(self, channel, data):
        for at in range(0, len(data), 65536):
            part = data[at:at + 65536]
            self._write(struct.pack(">II", self.streams[channel], len(part)) + part)

    def finish(self):
        for stream in self.streams.values():
            self._write(struct.pack(">II", stream, 1 << 24))

    def _frame(self):
        first, second = struct.unpack(">II", exactly(self.source, 8))
        return first, second >> 24, exactly(self.source, second & 0xffffff)

    def _take(self):
        """A frame: (channel, data) or None."""
        first, flags, data = self._frame()
        if not first & 0x80000000:
            if first not in self.channels:
                return None
            return self.channels[first], data, bool(flags & 1)
        kind = first & 0xffff
        if kind == 1:           # SYN_STREAM
            stream = struct.unpack(">I", data[:4])[0]
            headers = self._headers(self.unpacked.decompress(data[10:]))
            channel = NAMES[headers["streamtype"]]
            self.streams[channel], self.channels[stream] = stream, channel
            block = self.packed.compress(struct.pack(">I", 0)) + self.packed.flush(zlib.Z_SYNC_FLUSH)
            self._write(struct.pack(">III", 0x80030002, 4 + len(block), stream) + block)
        elif kind == 6:         # PING
            self._write(struct.pack(">II", 0x80030006, 4) + data)
        elif kind == 7:         # GOAWAY
            raise EOFError
        return None

    @staticmethod
    def _headers(block):
        words, at = [], 4
        while at < len(block):
            size = struct.unpack(">I", block[at:at + 4])[0]
            words.append(block[at + 4:at + 4 + size].decode())
            at += 4 + size
        return dict(zip(words[::2], words[1::2]))

    def ready(self, wanted):
        while len(self.streams) < wanted:
            taken = self._take()
            if taken:
                self.early.append(taken)

    def input(self):
        while True:
            taken = self.early.pop(0) if self.early else self._take()
            if taken is None:
                continue
            channel, data, ends = taken
            if data:
                yield channel, data
            if ends:
                yield channel, None


def send_status(connection, status):
    """How the command has ended, as kubelet says it."""
    if status == 0:
        value = {"metadata": {}, "status": "Success"}
    else:
        code = str(status if status > 0 else 128 - status)
        value = {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "message": "command terminated with non-zero exit code: exit status " + code,
                 "details": {"causes": [{"reason": "ExitCode", "message": code}]}}
    connection.send(ERROR, json.dumps(value).encode())


def serve_process(connection, process, once=True):
    """Passes on what a process writes and what is written to it; ends when it has ended, or the client has gone. `once`: the process's input
    ends with the client's (stdinOnce). Otherwise it stays open, and the client gets no more output: so containerd does it, and `kubectl debug`
    asks for no stdinOnce."""
    def pass_on(channel, source):
        try:
            data = None
            while data != b"" and not gone.is_set():
                if select.select([source], [], [], 0.1)[0]:
                    data = os.read(source.fileno(), 65536)
                    if not deaf.is_set():
                        connection.send(channel, data)
        except OSError:
            pass
        source.close()          # a process that goes on gets SIGPIPE

    def feed():
        try:
            for channel, data in connection.input():
                if channel == STDIN and data:
                    process.stdin.write(data)
                    process.stdin.flush()
                elif channel == STDIN and data is None and once:
                    process.stdin.close()
                elif channel == STDIN and data is None:
                    deaf.set()
        except (OSError, EOFError, ValueError):
            pass
        try:
            process.stdin.close()
        except OSError:
            pass
        gone.set()

    gone, deaf = threading.Event(), threading.Event()
    readers = [threading.Thread(target=pass_on, args=(STDOUT, process.stdout)), threading.Thread(target=pass_on, args=(STDERR, process.stderr))]
    for thread in readers + [threading.Thread(target=feed, daemon=True)]:
        thread.start()
    for thread in readers:
        thread.join()
    status = process.wait()
    if not gone.is_set():
        send_status(connection, status)
        connection.finish()
        gone.wait(10)


class Pod:
    """`node`: where its commands run, None: nowhere. `wrapper`: what they are run by. `message`: why nobody may execute anything in it."""

    def __init__(self, name, node=None, phase="Running", wrapper=(), message=None):
        self.name, self.node, self.phase, self.wrapper, self.message = name, node, phase, list(wrapper), message
        self.on_exec = lambda: None
        self.added, self.process = [], None         # ephemeral containers, and the last one's process

    def value(self):
        value = {"kind": "Pod", "apiVersion": "v1", "metadata": {"namespace": "train", "name": self.name, "resourceVersion": "1", "uid": self.name},
                 "spec": {"containers": [{"name": "main", "image": "x"}], "securityContext": {}}, "status": {"phase": self.phase}}
        if self.added:
            value["spec"]["ephemeralContainers"] = self.added
            value["status"]["ephemeralContainerStatuses"] = [{"name": one["name"], "state": {"running": {}}} for one in self.added]
        if self.phase != "Pending":
            value["spec"]["nodeName"] = "machine"
        return value


def forbidden(resource, name=None, verb="create"):
    whose = 'pods "%s"' % name if name else "pods"
    return '%s is forbidden: User "ann" cannot %s resource "%s" in API group "" in the namespace "train"' % (whose, verb, resource)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, value):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def refuse(self, status, reason, message):
        self.answer(status, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "code": status, "message": message})

    def upgrade(self, wanted):
        self.close_connection = True
        connection = WebSocket(self) if self.headers.get("Upgrade", "").lower() == "websocket" else Spdy(self)
        self.server.spoken.add(type(connection).__name__)
        connection.ready(wanted)
        return connection

    def execute(self, pod, query):
        if pod.message:
            return self.refuse(403, "Forbidden", pod.message)
        if pod.phase == "Pending":
            return self.refuse(400, "BadRequest", "pod %s does not have a host assigned" % pod.name)
        streams = [name for name in ("stdin", "stdout", "stderr") if query.get(name) == ["true"]]
        connection = self.upgrade(len(streams) + 1)
        process = subprocess.Popen(pod.node.command(*pod.wrapper, *query["command"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        pod.on_exec()
        return serve_process(connection, process)

    def do_GET(self):
        address = urllib.parse.urlparse(self.path)
        query = urllib.parse.parse_qs(address.query)
        self.server.asked.append((self.command, self.path))
        if address.path == "/version":
            return self.answer(200, {"major": "1", "minor": self.server.minor, "gitVersion": "v1.%s.0" % self.server.minor})
        if address.path == "/api":
            return self.answer(200, {"kind": "APIVersions", "versions": ["v1"]})
        if address.path == "/apis":
            return self.answer(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
        if address.path == "/api/v1":
            pods = {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get", "list"], "shortNames": ["po"]}
            return self.answer(200, {"kind": "APIResourceList", "groupVersion": "v1", "resources": [pods]})
        words = address.path.strip("/").split("/")           # api v1 namespaces NS pods [NAME [exec]]
        if words[3:4] == ["closed"]:
            return self.refuse(403, "Forbidden", 'pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "closed"')
        if len(words) == 5 and "watch" in query:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.close_connection = True
            return time.sleep(5)
        if len(words) == 5 and "fieldSelector" in query:
            name = query["fieldSelector"][0].split("=")[1]
            return self.answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"},
                                     "items": [pod.value() for pod in self.server.pods if pod.name == name]})
        if len(words) == 5:
            found = self.server.pods if query.get("labelSelector") == ["app=train"] else []
            return self.answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod.value() for pod in found]})
        pod = next((pod for pod in self.server.pods if words[5:6] == [pod.name]), None)
        if pod is None:
            return self.refuse(404, "NotFound", 'pods "%s" not found' % (words + [""] * 6)[5])
        if words[6:] == ["ephemeralcontainers"]:
            return self.add_container(pod)
        if words[6:] == ["attach"]:
            connection = self.upgrade(1 + sum(query.get(name) == ["true"] for name in ("stdin", "stdout", "stderr")))
            # Whoever attaches sees what is written from then on.
            while select.select([pod.process.stdout], [], [], 0.3)[0]:
                if not os.read(pod.process.stdout.fileno(), 65536):
                    break
            return serve_process(connection, pod.process, once=False)
        if words[6:] == ["exec"]:
            return self.execute(pod, query)
        return self.answer(200, pod.value())

    def add_container(self, pod):
        """What `kubectl debug` adds starts at once, with a standard input that waits for whoever attaches."""
        patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if pod.message:
            return self.refuse(403, "Forbidden", pod.message)
        pod.added = patch["spec"]["ephemeralContainers"]
        pod.process = subprocess.Popen(pod.node.command(*pod.added[-1]["command"]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return self.answer(200, pod.value())

    do_POST = do_PATCH = do_GET


class ApiServer:
    """With pods of the label app=train, and a namespace `closed` in which nobody may list any."""

    def __init__(self, directory, pods, minor="32"):
        if not kubectl_works():
            raise Skip("no kubectl here (Debian: kubernetes-client)")
        if nodes.INSIDE in os.environ:       # with a network of its own
            nodes.run("ip", "link", "set", "lo", "up")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.pods, self.server.minor = pods, minor
        self.server.asked, self.server.spoken = [], set()
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        config = os.path.join(directory, "config")
        with open(config, "w", encoding="ascii") as out:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "ann"}}],
                       "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:%d" % self.server.server_port}}],
                       "users": [{"name": "ann", "user": {}}]}, out)
        self.environment = dict(os.environ, KUBECONFIG=config, HOME=directory)

    @property
    def asked(self):
        return self.server.asked

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.server.shutdown()
        self.server.server_close()


def kubectl_works():
    if not shutil.which("kubectl"):
        return False
    return subprocess.run(["kubectl", "version", "--client"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0
