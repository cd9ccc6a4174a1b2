"""What clients do wrong: `snug serve` answers it or drops it, and goes on."""

import http.client
import json
import resource
import socket
import threading
import time
import unittest

from server import MODEL, Server, ServerTest

CHAT = "/v1/chat/completions"


def chat(**more):
    return {"messages": [{"role": "user", "content": "Tell me a long story."}], "temperature": 0, "max_tokens": 8, **more}


class BadRequests(ServerTest):
    flags = ("--max-body", "1MiB")

    def assert_error(self, reply, status, says=""):
        code, headers, body = reply
        self.assertEqual(code, status, body)
        self.assertEqual(set(body["error"]), {"message", "type", "param", "code"})
        self.assertIn(says, body["error"]["message"])
        if status in (429, 503):
            self.assertGreaterEqual(int(headers["Retry-After"]), 1)

    def tearDown(self):
        status, _, body = self.server.post(CHAT, chat())
        self.assertEqual(status, 200, "the next request is served")
        self.assertEqual(body["usage"]["completion_tokens"], 8)

    def test_bodies_that_are_not_requests(self):
        for body in (b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"messages": "hi"}', b'{"messages": [1]}',
                     b'{"messages": [{}]}', b'{"messages": [{"role": "user", "content": 5}]}',
                     b"[" * 100_000, b'{"messages":' + b"[" * 500 + b"]" * 500 + b"}"):
            with self.subTest(body=body[:40]):
                self.assert_error(self.server.post(CHAT, body), 400)

    def test_numbers_that_are_none(self):
        text = json.dumps(chat())[:-1]
        for field in ("temperature", "top_p", "repetition_penalty", "seed", "max_tokens", "top_k"):
            for value in ("NaN", "Infinity", "-Infinity", "1e999", '"NaN"', "[]", "{}"):
                with self.subTest(field=field, value=value):
                    self.assert_error(self.server.post(CHAT, f'{text}, "{field}": {value}}}'.encode()), 400)

    def test_lone_surrogates(self):
        for text in (r"emoji \ud83d", r"x \ude00 y", r"\udcf0"):
            for body in (f'{{"messages":[{{"role":"user","content":"{text}"}}]}}', f'{{"messages":[{{"role":"{text}","content":"x"}}]}}',
                         f'{{"prompt":"{text}"}}', f'{{"{text}":1,"messages":[]}}'):
                for stream in ("", ', "stream": true'):
                    path = "/v1/completions" if "prompt" in body else CHAT
                    self.assert_error(self.server.post(path, (body[:-1] + stream + "}").encode()), 400)
        status, _, _ = self.server.post(CHAT, br'{"messages":[{"role":"user","content":"\ud83d\ude00"}],"max_tokens":2}')
        self.assertEqual(status, 200, "a proper pair is text")

    def test_null_is_absent_and_zero_is_wrong(self):
        nothing = {name: None for name in (
            "functions", "logit_bias", "seed", "tools", "tool_choice", "response_format", "stop", "n", "top_p", "top_k",
            "max_completion_tokens", "stream", "stream_options", "logprobs", "top_logprobs", "presence_penalty", "user")}
        status, headers, body = self.server.post(CHAT, chat(**nothing))
        self.assertEqual(status, 200, body)
        self.assertIsNone(headers["X-Ignored-Fields"])
        for field in ("n", "top_p", "max_tokens", "max_completion_tokens"):
            self.assert_error(self.server.post(CHAT, chat(**{field: 0})), 400, field)
        self.assert_error(self.server.post(CHAT, chat(repetition_penalty=0, stream=True)), 400, "repetition_penalty")
        for off in (0, -1):
            self.assertEqual(self.server.post(CHAT, chat(top_k=off))[0], 200)

    def test_unknown_fields_are_said(self):
        _, headers, _ = self.server.post(CHAT, chat(temprature=0.5))
        self.assertEqual(headers["X-Ignored-Fields"], "temprature")

    def test_ids_outside_the_vocabulary(self):
        for ids in ([-1], [49152], [2**40], [2**70], [1, "a"], [True], []):
            with self.subTest(ids=ids):
                self.assert_error(self.server.post("/v1/completions", {"prompt": ids}), 400)

    def test_paths_and_methods(self):
        self.assert_error(self.server.get("/v1/nothing"), 404)
        self.assert_error(self.server.get(CHAT), 405)
        self.assert_error(self.server.post("/v1/models", {}), 405)

    def test_large_bodies(self):
        self.assert_error(self.server.post(CHAT, chat(messages=[{"role": "user", "content": "x" * (1 << 20)}])), 413)
        # A gigabyte is announced: the answer comes before it does.
        with socket.create_connection(("127.0.0.1", self.server.port)) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n{")
            self.assertIn(b"413", client.recv(4096))
        # In chunks, without a length.
        with socket.create_connection(("127.0.0.1", self.server.port)) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            try:
                for _ in range(64):
                    client.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            except (BrokenPipeError, ConnectionResetError):
                pass
            client.settimeout(10)
            self.assertIn(b"413", client.recv(4096))

    def test_what_is_not_http(self):
        for data, status in ((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"), (b"hello\r\n\r\n", b"400"),
                             (b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", b"431")):
            with socket.create_connection(("127.0.0.1", self.server.port)) as client:
                client.sendall(data)
                client.settimeout(10)
                self.assertIn(status, client.recv(4096)[:20])

    def test_one_connection_for_many_requests(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        for stream in (False, True, False):
            connection.request("POST", CHAT, json.dumps(chat(stream=stream)))
            reply = connection.getresponse()
            self.assertEqual(reply.status, 200)
            self.assertEqual(reply.read().endswith(b"[DONE]\n\n"), stream)
        connection.close()


class Departures(ServerTest):
    flags = ("--max-num-seqs", "2")

    def leave(self, after, **more):
        """Sends a request that would run long, and goes."""
        with socket.create_connection(("127.0.0.1", self.server.port)) as client:
            body = json.dumps(chat(max_tokens=4096, ignore_eos=True, **more)).encode()
            client.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body)) + body)
            time.sleep(after)

    def test_work_ends_with_the_client(self):
        for stream in (False, True):
            self.leave(0.3, stream=stream)
            self.assertTrue(self.server.wait_until_idle(1), self.server.health())

    def test_one_that_waits_never_starts(self):
        threads = [threading.Thread(target=self.leave, args=(4.0,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        self.leave(0.1)
        self.assertTrue(self.server.wait_for(1, lambda health: health["requests"] == 2), self.server.health())
        self.assertEqual(self.server.health()["running"], 2, "the two that began are still at work")
        for thread in threads:
            thread.join()
        self.assertTrue(self.server.wait_until_idle(1))

    def test_fifty_departures(self):
        threads = [threading.Thread(target=self.leave, args=(0.01 * i, ), kwargs={"stream": i % 2 == 0}) for i in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(self.server.wait_until_idle(2), self.server.health())
        self.assertEqual(self.server.post(CHAT, chat())[0], 200)

    def test_a_reader_that_stops_reading(self):
        with socket.create_connection(("127.0.0.1", self.server.port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            body = json.dumps(chat(max_tokens=300, ignore_eos=True, stream=True, logprobs=True, top_logprobs=20)).encode()
            client.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(body)) + body)
            self.assertEqual(self.server.post(CHAT, chat())[0], 200, "others are served meanwhile")
            self.assertTrue(self.server.wait_until_idle(30), "its tokens do not wait for it")

    def test_idle_connections(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        wanted = min(10_000, hard - 200)
        before = self.resident()
        idle = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(wanted)]
        try:
            self.assertEqual(self.server.post(CHAT, chat())[0], 200)
            each = (self.resident() - before) / wanted
            print(f"{wanted} idle connections: {each / 1024:.1f} KiB each")
            self.assertLess(each, 6 << 10, "what the plan allows for")
        finally:
            for connection in idle:
                connection.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def resident(self):
        with open(f"/proc/{self.server.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()


class Queue(ServerTest):
    flags = ("--max-num-seqs", "2", "--max-queue", "6")

    def test_each_request_gets_an_answer(self):
        answers = []

        def ask():
            answers.append(self.server.post(CHAT, chat(max_tokens=20)))

        threads = [threading.Thread(target=ask) for _ in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        statuses = [status for status, _, _ in answers]
        self.assertEqual(len(statuses), 100)
        self.assertEqual(set(statuses), {200, 429})
        self.assertGreaterEqual(statuses.count(200), 8)
        for status, headers, body in answers:
            if status == 429:
                self.assertEqual(headers["Retry-After"], "1")
                self.assertEqual(body["error"]["code"], "queue_full")
        self.assertEqual(self.server.health()["requests"], 0)


class Keys(ServerTest):
    flags = ("--api-key", "first", "--api-key", "second", "--allowed-origin", "https://example.org")

    def test_keys(self):
        for headers, status in (({}, 401), ({"Authorization": "Bearer wrong"}, 401), ({"Authorization": "Bearer first"}, 200),
                                ({"X-Api-Key": "second"}, 200)):
            code, _, body = self.server.post(CHAT, chat(), headers)
            self.assertEqual(code, status)
            if status == 401:
                self.assertEqual(body["error"]["code"], "invalid_api_key")
        self.assertEqual(self.server.get("/health")[0], 200, "probes need none")

    def test_origins(self):
        for path, body in ((CHAT, chat(stream=False)), (CHAT, {"messages": []})):
            _, headers, _ = self.server.post(path, body, {"Authorization": "Bearer first"})
            self.assertEqual(headers["Access-Control-Allow-Origin"], "https://example.org")


@unittest.skipUnless(MODEL, "SNUG_TEST_SMOLLM2 is not set: scripts/test.sh fetches the model")
class Ends(unittest.TestCase):
    def test_running_requests_may_end(self):
        server = Server("--max-model-len", "512", "--threads", "2")
        answers = []
        thread = threading.Thread(target=lambda: answers.append(server.post(CHAT, chat(max_tokens=150, ignore_eos=True))))
        thread.start()
        while server.health()["requests"] == 0:
            time.sleep(0.01)
        self.assertEqual(server.stop(), 0)
        thread.join()
        self.assertEqual(answers[0][0], 200)
        self.assertEqual(answers[0][2]["usage"]["completion_tokens"], 150)

    def test_kill_and_start_again(self):
        server = Server("--max-model-len", "512")
        server.process.kill()
        server.stop()
        again = Server("--max-model-len", "512", port=server.port)
        self.assertEqual(again.post(CHAT, chat())[0], 200)
        self.assertEqual(again.stop(), 0)


if __name__ == "__main__":
    unittest.main()
