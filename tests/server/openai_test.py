"""The official OpenAI client against `snug serve`."""

import json
import os
import subprocess
import threading
import unittest

import openai
from server import MODEL, PROGRAM, ServerTest

QUESTION = [{"role": "user", "content": "Write a short story about a fox."}]


class OpenAI(ServerTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="unused", max_retries=0)

    def chat(self, **more):
        arguments = {"model": "smol", "messages": QUESTION, "max_tokens": 12, "temperature": 0, **more}
        return self.client.chat.completions.create(**arguments)

    def test_models(self):
        models = self.client.models.list().data
        self.assertEqual([m.id for m in models], ["smol"])
        self.assertEqual(self.client.models.retrieve("smol").id, "smol")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")

    def test_chat(self):
        reply = self.chat()
        self.assertEqual(reply.object, "chat.completion")
        self.assertEqual(reply.model, "smol")
        [choice] = reply.choices
        self.assertEqual(choice.message.role, "assistant")
        self.assertTrue(choice.message.content)
        self.assertEqual(choice.finish_reason, "length")
        self.assertEqual(reply.usage.completion_tokens, 12)
        self.assertEqual(reply.usage.total_tokens, reply.usage.prompt_tokens + 12)

    def test_stream_joins_to_the_whole(self):
        whole = self.chat()
        chunks = list(self.chat(stream=True))
        text = "".join(c.choices[0].delta.content or "" for c in chunks)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual([c.choices[0].finish_reason for c in chunks],
                         [None] * (len(chunks) - 1) + ["length"])
        self.assertGreater(len(chunks), 8, "it came in pieces")
        self.assertTrue(all(c.usage is None for c in chunks))

    def test_stream_usage(self):
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual([len(c.choices) for c in chunks], [1] * (len(chunks) - 1) + [0])
        self.assertTrue(all(c.usage is None for c in chunks[:-1]))
        self.assertEqual(chunks[-1].usage.completion_tokens, 12)

    def test_several_answers(self):
        options = {"n": 3, "temperature": 1.0, "seed": 5}
        whole = self.chat(**options)
        self.assertEqual([c.index for c in whole.choices], [0, 1, 2])
        self.assertEqual(whole.usage.completion_tokens, 36)
        self.assertGreater(len({c.message.content for c in whole.choices}), 1)
        texts, ends = {}, {}
        for chunk in self.chat(stream=True, **options):
            choice = chunk.choices[0]
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            if choice.finish_reason:
                ends[choice.index] = choice.finish_reason
        self.assertEqual(texts, {c.index: c.message.content for c in whole.choices})
        self.assertEqual(ends, {0: "length", 1: "length", 2: "length"})

    def test_logprobs(self):
        whole = self.chat(logprobs=True, top_logprobs=3)
        content = whole.choices[0].logprobs.content
        self.assertEqual(len(content), 12)
        self.assertEqual(b"".join(bytes(t.bytes) for t in content).decode(), whole.choices[0].message.content)
        for token in content:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual(token.top_logprobs[0].token, token.token, "greedy takes the most likely")
        streamed = []
        for chunk in self.chat(logprobs=True, top_logprobs=3, stream=True):
            if chunk.choices[0].logprobs:
                streamed += chunk.choices[0].logprobs.content
        self.assertEqual(streamed, content)

    def test_stop_and_the_two_limits(self):
        text = self.chat(max_tokens=40).choices[0].message.content
        word = text.split()[4]
        cut = self.chat(max_tokens=40, stop=[word]).choices[0]
        self.assertEqual(cut.finish_reason, "stop")
        self.assertEqual(cut.message.content, text[:text.index(word)])
        self.assertEqual(self.chat(max_completion_tokens=5).usage.completion_tokens, 5, "the newer name wins")
        # More than the context holds is clamped to it.
        with self.chat(max_tokens=32000, stream=True) as stream:
            self.assertEqual(next(iter(stream)).choices[0].delta.role, "assistant")

    def test_seed(self):
        draws = [self.chat(temperature=1.0, seed=7).choices[0].message.content for _ in range(3)]
        self.assertEqual(len(set(draws)), 1)
        self.assertNotEqual(self.chat(temperature=1.0, seed=8).choices[0].message.content, draws[0])

    def test_text_completion(self):
        reply = self.client.completions.create(model="smol", prompt="The fox", max_tokens=6, temperature=0, logprobs=2)
        self.assertEqual(reply.object, "text_completion")
        self.assertEqual(reply.usage.completion_tokens, 6)
        self.assertEqual("".join(reply.choices[0].logprobs.tokens), reply.choices[0].text)
        status, _, tokens = self.server.post("/tokenize", {"prompt": "The fox"})
        self.assertEqual(status, 200)
        by_ids = self.client.completions.create(model="smol", prompt=tokens["tokens"], max_tokens=6, temperature=0)
        self.assertEqual(by_ids.choices[0].text, reply.choices[0].text)
        back = self.server.post("/detokenize", {"tokens": tokens["tokens"]})[2]
        self.assertEqual(back["prompt"], "The fox")
        echoed = self.client.completions.create(model="smol", prompt="The fox", max_tokens=6, temperature=0, echo=True)
        self.assertEqual(echoed.choices[0].text, "The fox" + reply.choices[0].text)

    def test_errors_are_the_clients(self):
        cases = [
            (openai.NotFoundError, {"model": "gpt-5"}, "model"),
            (openai.BadRequestError, {"messages": []}, "messages"),
            (openai.BadRequestError, {"temperature": -1}, "temperature"),
            (openai.BadRequestError, {"top_p": 0}, "top_p"),
            (openai.BadRequestError, {"max_tokens": 0}, "max_tokens"),
            (openai.BadRequestError, {"n": 0}, "n"),
            (openai.BadRequestError, {"n": 1000}, "n"),
            (openai.BadRequestError, {"logit_bias": {"191222": -100}}, "logit_bias"),
            (openai.BadRequestError, {"top_logprobs": 3}, "top_logprobs"),
            (openai.BadRequestError, {"messages": [{"role": "user", "content": "long " * 2000}]}, "messages"),
            (openai.BadRequestError, {"response_format": {"type": ""}}, "response_format"),
        ]
        for error, arguments, param in cases:
            for stream in (False, True):
                with self.subTest(arguments=str(arguments)[:60], stream=stream):
                    with self.assertRaises(error) as raised:
                        list(self.chat(stream=stream, **arguments))
                    self.assertEqual(raised.exception.body["param"], param)
                    self.assertTrue(raised.exception.body["message"])
        self.chat()  # and the next request is served

    def test_memory_is_within_the_prediction(self):
        self.chat(n=4, max_tokens=20)
        memory = self.server.health()["memory"]
        self.assertGreater(memory["peak"]["host"], 0)
        self.assertLessEqual(memory["peak"]["host"], memory["predicted"]["host"])
        self.assertLessEqual(memory["predicted"]["host"], memory["budget"]["host"])

    # Whatever else runs, a greedy answer is the one that the program gives alone.
    def test_answers_equal_those_of_run(self):
        prompts = [f"Name {i} animals that live in a {place}." for i, place in
                   enumerate(["forest", "river", "desert", "city", "house", "sea", "cave", "barn"], 2)]
        answers = {}

        def ask(prompt):
            answers[prompt] = self.chat(messages=[{"role": "user", "content": prompt}], max_tokens=40)

        threads = [threading.Thread(target=ask, args=(p,)) for p in prompts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for prompt in prompts:
            run = subprocess.run(
                [PROGRAM, "run", MODEL, "--chat", "-p", prompt, "--max-tokens", "40", "--temperature", "0",
                 "--device", "cpu", "--json"], capture_output=True, check=True)
            self.assertEqual(answers[prompt].choices[0].message.content, json.loads(run.stdout)["text"])


if __name__ == "__main__":
    unittest.main()
