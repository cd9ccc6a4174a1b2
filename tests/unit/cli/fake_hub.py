#!/usr/bin/env python3
"""A model hub on 127.0.0.1 that misbehaves on request; the repository's name (without a final digit) says how.

Listens on two free ports (two origins: the hub, and a place that it redirects to), prints "HUB_PORT OTHER_PORT",
appends every request as a line of JSON to the file named by its argument, and ends when its stdin is closed.
"""

import hashlib
import http.server
import json
import os
import re
import sys
import threading
import urllib.parse

TOKEN = "secret"


def noise(size, seed):
    out = b""
    while len(out) < size:
        seed = hashlib.sha256(seed.encode()).hexdigest()
        out += bytes.fromhex(seed)
    return out[:size]


MODEL_FILES = {
    "config.json": b'{"model_type": "qwen2"}\n',
    "tokenizer.json": noise(5000, "tokenizer"),
    "empty.txt": b"",
    "model.safetensors": noise(300_000, "weights"),
    "README.md": b"# read me\n",
    "onnx/config.json": b"{}\n",
    "a folder/sp\u00e4ce #1.json": b"[1]\n",
}
GGUF_FILES = {"small-q4_0.gguf": noise(2000, "q4"), "small-q8_0.gguf": noise(4000, "q8"), "README.md": b"x"}


def files_of(repo):
    return GGUF_FILES if repo == "org/gguf" else MODEL_FILES


def entry(path, content):
    """One file of the listing, as the hub writes it: large files are LFS objects."""
    row = {"type": "file", "path": path, "size": len(content)}
    if path.endswith((".safetensors", ".gguf")):
        row["oid"] = hashlib.sha1(b"pointer").hexdigest()
        row["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    else:
        row["oid"] = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return row


class State:
    lock = threading.Lock()
    counts = {}
    log = None
    ports = (0, 0)

    @classmethod
    def count(cls, key):
        """How often this was called with `key` before."""
        with cls.lock:
            cls.counts[key] = cls.counts.get(key, 0) + 1
            return cls.counts[key] - 1

    @classmethod
    def record(cls, row):
        with cls.lock:
            cls.log.write(json.dumps(row) + "\n")
            cls.log.flush()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # connections cut on purpose are no news


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self, status, body=b"", headers=(), length=None):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def error(self, status, code):
        self.answer(status, b'{"error": "no"}', [("X-Error-Code", code)])

    def drop(self):
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(2)

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        port = self.server.server_address[1]
        State.record({"path": self.path, "range": self.headers.get("Range"),
                      "authorization": self.headers.get("Authorization"), "hub": port == State.ports[0]})
        tree = re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", url.path)
        resolve = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", url.path)
        storage = re.fullmatch(r"/storage/([^/]+/[^/]+)/(.+)", url.path)
        if tree:
            self.tree(tree.group(1), urllib.parse.unquote(tree.group(2)), urllib.parse.parse_qs(url.query))
        elif resolve:
            self.resolve(resolve.group(1), urllib.parse.unquote(resolve.group(3)))
        elif storage:
            self.content(storage.group(1), files_of(storage.group(1))[urllib.parse.unquote(storage.group(2))])
        else:
            self.error(404, "EntryNotFound")

    def tree(self, repo, revision, query):
        if repo == "org/missing":
            return self.error(404, "RepoNotFound")
        if repo == "org/hidden":
            return self.error(401, "RepoNotFound")
        if revision not in ("main", "refs/pr/1"):
            return self.error(404, "RevisionNotFound")
        if repo == "org/gated" and self.headers.get("Authorization") != "Bearer " + TOKEN:
            return self.error(401, "GatedRepo")
        if repo == "org/down" or (repo == "org/flaky" and State.count("flaky tree") < 2):
            return self.error(503, "")
        if repo == "org/notjson":
            return self.answer(200, b"<html>hello</html>")
        if repo == "org/notlist":
            return self.answer(200, b'{"type": "file"}')
        if repo == "org/nohash":
            return self.answer(200, b'[{"type": "file", "path": "config.json", "size": 3}]')
        if repo == "org/badsize":
            return self.answer(200, b'[{"type": "file", "path": "config.json", "size": -3, "oid": "00"}]')
        rows = [{"type": "directory", "path": "onnx", "size": 0, "oid": "0" * 40}]
        rows += [entry(path, content) for path, content in files_of(repo).items()]
        if repo.startswith("org/evil"):
            evil = {"org/evil": "../escaped.json", "org/evil-absolute": "/tmp/escaped.json",
                    "org/evil-inner": "a/../../escaped.json", "org/evil-manifest": ".snug.json"}[repo]
            rows.append(entry(evil, b"{}"))
        if repo == "org/toolong":  # the listing says less than will come
            rows[-4]["size"] = rows[-4]["lfs"]["size"] = 100_000
            assert rows[-4]["path"] == "model.safetensors"
        headers = []
        if repo == "org/paged":
            page = int(query.get("cursor", ["0"])[0])
            if page + 3 < len(rows):
                target = f"http://127.0.0.1:{State.ports[0]}/api/models/{repo}/tree/{revision}?cursor={page + 3}"
                headers = [("Link", f'<{target}>; rel="next"')]
            rows = rows[page:page + 3]
        if repo == "org/endless":
            headers = [("Link", f'<{self.path}>; rel="next"')]
        self.answer(200, json.dumps(rows).encode(), headers)

    def resolve(self, repo, path):
        if path not in files_of(repo):
            return self.error(404, "EntryNotFound")
        if repo == "org/redirect":
            return self.answer(302, b"moved", [("Location", f"/storage/{repo}/{urllib.parse.quote(path)}")])
        if repo == "org/elsewhere" or (repo == "org/gated" and path == "model.safetensors"):
            target = f"http://127.0.0.1:{State.ports[1]}/storage/{repo}/{urllib.parse.quote(path)}"
            return self.answer(307, b"moved", [("Location", target)])
        if repo == "org/loop":
            return self.answer(302, b"", [("Location", self.path)])
        if repo == "org/gated" and self.headers.get("Authorization") != "Bearer " + TOKEN:
            return self.error(401, "GatedRepo")
        self.content(repo, files_of(repo)[path], path)

    def content(self, repo, content, path=""):
        big = path == "model.safetensors"
        requested = self.headers.get("Range")
        begin = int(re.fullmatch(r"bytes=(\d+)-", requested).group(1)) if requested else 0
        if big and repo == "org/corrupt":
            content = content[:1000] + bytes([content[1000] ^ 1]) + content[1001:]
        if big and repo == "org/flaky" and State.count("flaky file") == 0:
            return self.error(502, "")
        if big and repo == "org/full" and begin > 0:
            return self.error(416, "")
        if big and repo == "org/norange":
            begin, requested = 0, None
        if big and repo == "org/wrongrange" and begin > 0 and State.count("wrong range") == 0:
            return self.answer(206, content[5:], [("Content-Range", f"bytes 5-{len(content) - 1}/{len(content)}")])
        if begin >= len(content) > 0:
            return self.answer(416, b"", [("Content-Range", f"bytes */{len(content)}")])
        rest = content[begin:]
        headers = [("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")] if requested else []
        drops = {"org/drop": 3, "org/norange": 1, "org/wrongrange": 1, "org/full": 1}.get(repo.rstrip("0123456789"), 0)
        if big and repo == "org/stuck":  # never gets further
            self.answer(206 if requested else 200, rest[:1000] if begin == 0 else b"", headers, len(rest))
            return self.drop()
        if big and drops and State.count(repo + " drop") < drops:
            self.answer(206 if requested else 200, rest[:70_000], headers, len(rest))
            return self.drop()
        self.answer(206 if requested else 200, rest, headers)


def main():
    State.log = open(sys.argv[1], "a", encoding="utf-8")
    servers = [Server(("127.0.0.1", 0), Handler) for _ in range(2)]
    State.ports = tuple(server.server_address[1] for server in servers)
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(*State.ports, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
