"""What Hugging Face transformers reaches on this GPU with the geometry of Qwen2.5-7B and random bfloat16 weights.

    python3 tools/peer_transformers.py [--repeat 3] [PROMPTxGENERATExBATCH ...]

Prints the medians of prefill and decode in tokens per second for each case, the same that `snug bench
random:qwen2.5-7b` measures with --prompt, --generate and --batch, and the peak of device memory that PyTorch reserved.
"""

import argparse
import statistics
import time

import torch
from transformers import AutoModelForCausalLM, Qwen2Config


def make_model():
    config = Qwen2Config(
        hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
        num_key_value_heads=4, vocab_size=152064, max_position_embeddings=131072, tie_word_embeddings=False,
        rope_theta=1e6, dtype=torch.bfloat16,
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()


def measure(model, prompt, generate, batch, repeat):
    ids = torch.randint(0, 150000, (batch, prompt), device="cuda")
    prefill, decode = [], []
    for i in range(repeat + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        out = model(ids, use_cache=True, logits_to_keep=1)
        token = out.logits[:, -1:].argmax(-1)
        torch.cuda.synchronize()
        first = time.perf_counter()
        for _ in range(generate - 1):
            out = model(token, past_key_values=out.past_key_values, use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
        torch.cuda.synchronize()
        end = time.perf_counter()
        if i > 0:
            prefill.append(batch * prompt / (first - start))
            decode.append(batch * (generate - 1) / (end - first))
    return statistics.median(prefill), statistics.median(decode)


def case(text):
    numbers = text.split("x")
    if len(numbers) != 3 or not all(n.isdecimal() and int(n) > 0 for n in numbers) or int(numbers[1]) < 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not PROMPTxGENERATExBATCH, as 4096x32x1, with at least 2 to generate")
    return tuple(map(int, numbers))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("cases", nargs="*", type=case, default=[(4096, 32, 1)], metavar="PROMPTxGENERATExBATCH")
    args = parser.parse_args()
    model = make_model()
    for prompt, generate, batch in args.cases:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        with torch.no_grad():
            prefill, decode = measure(model, prompt, generate, batch, args.repeat)
        print(
            f"transformers, prompt {prompt}, batch {batch}: prefill {prefill:.0f} tok/s, decode {decode:.1f} tok/s, "
            f"{torch.cuda.max_memory_reserved() / 2**30:.1f} GiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
