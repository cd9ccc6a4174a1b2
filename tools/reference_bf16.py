"""How far Hugging Face transformers is from the golden float32 logits when it computes in bfloat16.

    python3 tools/reference_bf16.py ../shared/golden/text [device]

Prints for every model the relative RMS error over the last logits of all prompts: what Snug's bfloat16 should
not exceed.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def main():
    root = pathlib.Path(sys.argv[1])
    device = sys.argv[2] if len(sys.argv) > 2 else "cpu"
    for folder in sorted(p for p in root.iterdir() if (p / "golden.json").exists()):
        cases = json.loads((folder / "golden.json").read_text())["cases"]
        golden = load_file(folder / "golden.safetensors")
        for dtype in (torch.float32, torch.bfloat16):
            model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, attn_implementation="eager"
            ).to(device)
            error = norm = 0.0
            for i, case in enumerate(cases):
                with torch.no_grad():
                    ids = torch.tensor([case["prompt"]], device=device)
                    last = model(ids, logits_to_keep=1).logits[0, -1].float().cpu()
                want = golden[f"p{i}.logits_last"].float().flatten()
                error += float(((last - want) ** 2).sum())
                norm += float((want**2).sum())
            print(f"{folder.name:16} {str(dtype):15} {(error / norm) ** 0.5:.3e}")


if __name__ == "__main__":
    main()
