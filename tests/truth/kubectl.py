"""`rankstacks job --kubectl` by the real kubectl, against an API server that answers as one that permits too little does."""
import http.server
import json
import os
import shutil
import subprocess
import threading
import urllib.parse

import cases
from processes import Skip, check, tool

FORBIDDEN = 'pods "%s" is forbidden: User "ann" cannot create resource "pods/exec" in API group "" in the namespace "train"'


class Server(http.server.BaseHTTPRequestHandler):
    """Two pods with the label app=train; nobody may list those of the namespace `closed`, or execute anything."""
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

    def forbid(self, message):
        self.answer(403, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403, "message": message})

    def do_GET(self):
        address = urllib.parse.urlparse(self.path)
        self.server.asked.append(self.path)
        if address.path == "/api":
            return self.answer(200, {"kind": "APIVersions", "versions": ["v1"]})
        if address.path == "/apis":
            return self.answer(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
        if address.path == "/api/v1":
            pods = {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get", "list"], "shortNames": ["po"]}
            return self.answer(200, {"kind": "APIResourceList", "groupVersion": "v1", "resources": [pods]})
        words = address.path.strip("/").split("/")           # api v1 namespaces NS pods [NAME [exec]]
        if words[-1] == "exec":
            return self.forbid(FORBIDDEN % words[-2])
        if words[3:4] == ["closed"]:
            return self.forbid('pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "closed"')
        pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"namespace": "train"}, "spec": {"containers": [{"name": "main", "image": "x"}]}, "status": {"phase": "Running"}}
        if len(words) == 6:
            return self.answer(200, dict(pod, metadata={"namespace": "train", "name": words[5]}))
        wanted = urllib.parse.parse_qs(address.query).get("labelSelector") == ["app=train"]
        items = [dict(pod, metadata={"namespace": "train", "name": "worker-%d" % number}) for number in (0, 1)]
        return self.answer(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items if wanted else []})

    do_POST = do_GET


def kubectl_works():
    if not shutil.which("kubectl"):
        return False
    return subprocess.run(["kubectl", "version", "--client"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def case_refusals_name_the_rule(directory):
    if not kubectl_works():
        raise Skip("no kubectl here (Debian: kubernetes-client)")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = os.path.join(directory, "config")
    with open(config, "w", encoding="ascii") as out:
        json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "ann"}}],
                   "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:%d" % server.server_port}}], "users": [{"name": "ann", "user": {}}]}, out)
    environment = dict(os.environ, KUBECONFIG=config, HOME=directory)

    def ask(*words):
        process = subprocess.run([tool(), "job", "--kubectl"] + list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
                                 timeout=100, check=False)
        return process.returncode, process.stdout.decode(), process.stderr.decode()

    try:
        status, out, err = ask("app=train", "-n", "train", "--format", "json")
        check(status == 2, "status %d: %s" % (status, err))
        nodes = json.loads(out)["nodes"]
        check([(node["name"], node["engine"], node["fault"]) for node in nodes] == [("worker-0", "kubectl", "not-permitted"), ("worker-1", "kubectl", "not-permitted")], "%r" % nodes)
        check('resources: ["pods/exec"], verbs: ["create"]' in nodes[0]["hint"], "%r" % nodes)
        check(any("labelSelector=app%3Dtrain" in path for path in server.asked), "%r" % server.asked)
        status, out, err = ask("app=train", "-n", "closed")
        check(status == 2 and out == "" and 'resources: ["pods"], verbs: ["get", "list"]' in err, "%d %r %s" % (status, out, err))
        status, out, err = ask("app=other", "-n", "train")
        check(status == 2 and out == "" and "no pod of namespace train has the labels app=other" in err, "%d %r %s" % (status, out, err))
        status, out, err = ask("app=train", "-n", "train", "--print")
        check(status == 0 and out.startswith("kubectl exec -i -n train worker-0 -- sh -c "), "%d %s %s" % (status, out, err))
    finally:
        server.shutdown()


if __name__ == "__main__":
    cases.run(globals(), "kubectl")
