"""Starts the built program as a server, for the tests beside this file."""

import json
import os
import signal
import subprocess
import threading
import time
import unittest
import urllib.error
import urllib.request

PROGRAM = os.environ["SNUG_PROGRAM"]
MODEL = os.environ.get("SNUG_TEST_SMOLLM2", "")


class Server:
    """`snug serve` on a free port of 127.0.0.1."""

    def __init__(self, *flags, port=0):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", MODEL, "--port", str(port), "--device", "cpu", "--served-model-name", "smol", *flags],
            stderr=subprocess.PIPE, text=True)
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            if "listens on" in line:
                self.url = line.split()[-1]
                break
        else:
            raise RuntimeError("the server did not start:\n" + "".join(self.log))
        self.port = int(self.url.rsplit(":", 1)[1])
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr))
        self.reader.start()

    def post(self, path, body, headers={}):
        """Status, headers and decoded body of one request; `body` is bytes or something for JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json", **headers})
        return self._open(request)

    def get(self, path, headers={}):
        return self._open(urllib.request.Request(self.url + path, headers=headers))

    @staticmethod
    def _open(request):
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, reply.headers, json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read()
                return error.code, error.headers, json.loads(text) if text else None

    def health(self):
        return self.get("/health")[2]

    def wait_for(self, seconds, condition):
        """Whether /health meets the condition within that time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition(self.health()):
                return True
            time.sleep(0.02)
        return False

    def wait_until_idle(self, seconds):
        return self.wait_for(seconds, lambda health: health["requests"] == 0)

    def stop(self):
        """Asks it to end and returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        self.reader.join()
        self.process.stderr.close()
        return code


class ServerTest(unittest.TestCase):
    """One server for the tests of a class."""

    flags = ()

    @classmethod
    def setUpClass(cls):
        if not MODEL:
            raise unittest.SkipTest("SNUG_TEST_SMOLLM2 is not set: scripts/test.sh fetches the model")
        cls.server = Server("--max-model-len", "1024", "--threads", "2", *cls.flags)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        if code != 0:
            raise AssertionError(f"the server ended with {code}:\n" + "".join(cls.server.log))
