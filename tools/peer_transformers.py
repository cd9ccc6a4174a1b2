"""What Hugging Face transformers reaches on this GPU with the geometry of Qwen2.5-7B and random bfloat16 weights.

    python3 tools/peer_transformers.py [--prompt 4096] [--generate 32] [--batch 1] [--repeat 3]

Prints the medians of prefill and decode in tokens per second, the same cases that `snug bench random:qwen2.5-7b`
measures, and the peak of device memory that PyTorch reserved.
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--prompt", type=int, default=4096)
    parser.add_argument("--generate", type=int, default=32)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    model = make_model()
    ids = torch.randint(0, 150000, (args.batch, args.prompt), device="cuda")
    prefill, decode = [], []
    with torch.no_grad():
        for i in range(args.repeat + 1):
            torch.cuda.synchronize()
            start = time.perf_counter()
            out = model(ids, use_cache=True, logits_to_keep=1)
            token = out.logits[:, -1:].argmax(-1)
            torch.cuda.synchronize()
            first = time.perf_counter()
            for _ in range(args.generate - 1):
                out = model(token, past_key_values=out.past_key_values, use_cache=True)
                token = out.logits[:, -1:].argmax(-1)
            torch.cuda.synchronize()
            end = time.perf_counter()
            if i > 0:
                prefill.append(args.batch * args.prompt / (first - start))
                decode.append(args.batch * (args.generate - 1) / (end - first))
    print(
        f"transformers, prompt {args.prompt}, batch {args.batch}: prefill {statistics.median(prefill):.0f} tok/s, "
        f"decode {statistics.median(decode):.1f} tok/s, {torch.cuda.max_memory_reserved() / 2**30:.1f} GiB"
    )


if __name__ == "__main__":
    main()
