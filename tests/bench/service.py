#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chat requests through router, prefill and decode worker: rate, first tokens, longest gap.

Prints one JSON object per number of clients; exit status 1 when a bar for two Zen 4 cores and
SmolLM2-135M Q4_1 is missed.
"""
import json
import pathlib
import time

import cluster

BARS = {1: {"output_tokens_per_s": (">=", 270)},
        8: {"output_tokens_per_s": (">=", 560), "first_token_ms_p50": ("<=", 600),
            "gap_ms_max": ("<=", 60)}}


def measure(args, router: str, requests: list[dict], clients: int) -> dict:
    start = time.monotonic()
    results = cluster.answers(args, router, requests, clients)
    wall = time.monotonic() - start
    first = [result["timing_ms"]["first_token"] for result in results]
    tokens = sum(result["usage"]["completion_tokens"] for result in results)
    return {"clients": clients, "requests": len(results), "wall_s": round(wall, 2),
            "prompt_tokens": sum(result["usage"]["prompt_tokens"] for result in results),
            "output_tokens_per_s": round(tokens / wall, 1),
            "first_token_ms_p50": round(cluster.quantile(first, 0.5), 1),
            "first_token_ms_max": round(max(first), 1),
            "gap_ms_p50": round(cluster.quantile([r["itl_ms"]["p50"] for r in results], 0.5), 2),
            "gap_ms_max": round(max(r["itl_ms"]["max"] for r in results), 1)}


def main() -> int:
    parser = cluster.parser(__doc__)
    parser.add_argument("--prompts", type=pathlib.Path, required=True,
                        help="JSON lines with \"turns\", as MT-bench has them; the first turns count")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    args = parser.parse_args()
    prompts = [json.loads(line)["turns"][0] for line in args.prompts.read_text().splitlines()]
    requests = [{"messages": [{"role": "user", "content": prompt}], "temperature": 0,
                 "max_tokens": args.tokens, "ignore_eos": True} for prompt in prompts[:args.requests]]
    status = 0
    with cluster.cluster(args) as router:
        measure(args, router, requests, max(args.clients))  # pages and connections
        for clients in args.clients:
            status |= cluster.report(measure(args, router, requests, clients), BARS.get(clients, {}))
    return status


if __name__ == "__main__":
    raise SystemExit(main())
