#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch reaches on the same GPU: copies, bf16 products, scaled_dot_product_attention.

Prints one JSON object per line, as gpu_bench writes them; a line of kind "missing" with the reason
where PyTorch or its CUDA is not there.
"""
import json
import statistics
import sys

HEADS, KV_HEADS, DIM = 32, 2, 128  # ChatGLM2-6B


def write(**record) -> None:
    print(json.dumps(record), flush=True)


def seconds_of(torch, run, runs: int = 10, rounds: int = 5) -> float:
    """Of one run, by the device's own events; the median of the rounds."""
    for _ in range(3):
        run()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(runs):
            run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / runs)
    return statistics.median(times)


def copies(torch) -> None:
    source = torch.randn(1 << 29, device="cuda")  # 2 GiB
    target = torch.empty_like(source)
    seconds = seconds_of(torch, lambda: target.copy_(source))
    write(kind="torch", what="copy", shape="2 GiB", gb_per_s=2 * source.nbytes / seconds / 1e9)


def products(torch) -> None:
    for rows, inputs, outputs in ((2048, 4096, 27392), (2048, 13696, 4096), (8192, 8192, 8192)):
        a = torch.randn(rows, inputs, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(outputs, inputs, device="cuda", dtype=torch.bfloat16)
        seconds = seconds_of(torch, lambda x=a, y=b: torch.nn.functional.linear(x, y))
        write(kind="torch", what="gemm bf16", shape=f"{outputs} x {inputs}, {rows} rows",
              microseconds=seconds * 1e6, tflop_per_s=2 * rows * inputs * outputs / seconds / 1e12)


def attention(torch) -> None:
    for tokens in (512, 2048, 8192):
        q = torch.randn(1, HEADS, tokens, DIM, device="cuda", dtype=torch.bfloat16)
        # Each KV head once per query head, beforehand: what the backends do best.
        k, v = (torch.randn(1, KV_HEADS, tokens, DIM, device="cuda", dtype=torch.bfloat16)
                .repeat_interleave(HEADS // KV_HEADS, 1) for _ in range(2))
        seconds = seconds_of(torch, lambda a=q, b=k, c=v: torch.nn.functional.scaled_dot_product_attention(
            a, b, c, is_causal=True))
        flops = 2 * tokens * (tokens + 1) * HEADS * DIM  # the causal half, as gpu_bench counts
        write(kind="torch", what="scaled_dot_product_attention", shape=f"{tokens} tokens, causal",
              microseconds=seconds * 1e6, tflop_per_s=flops / seconds / 1e12)


def main() -> int:
    try:
        import torch
    except ImportError:
        write(kind="missing", what="PyTorch's figures", reason="PyTorch is not installed")
        return 0
    if not torch.cuda.is_available():
        write(kind="missing", what="PyTorch's figures", reason="PyTorch finds no CUDA device")
        return 0
    write(kind="torch", what="version", version=torch.__version__, cuda=torch.version.cuda)
    for part in (copies, products, attention):
        try:
            part(torch)
        except RuntimeError as problem:
            write(kind="missing", what=f"PyTorch's {part.__name__}", reason=str(problem)[:300])
    return 0


if __name__ == "__main__":
    sys.exit(main())
