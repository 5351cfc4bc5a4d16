#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Eight answers to a long prompt beside one: computed once, handed over once, and the tokens per second.

One and eight in turn, each prompt new; medians count. Prints one JSON object; exit status 1 when a bar
is missed.
"""
import random
import statistics

import cluster

BARS = {"times_the_tokens_per_s": (">=", 3.5), "handoff_bytes_ratio": ("<=", 1.0),
        "prefill_tokens_ratio": ("<=", 1.0)}


def ask(args, router: str, seed: int, answers: int) -> dict:
    draw = random.Random(seed)
    ids = [draw.randrange(1000, 40000) for _ in range(args.prompt_tokens)]
    request = {"prompt_ids": ids, "temperature": 1.0, "top_k": 40, "seed": seed, "n": answers,
               "path": "split", "max_tokens": args.tokens, "ignore_eos": True, "draft_tokens": 0}
    return cluster.answers(args, router, [request])[0]


def rate(result: dict) -> float:
    return 1000 * result["usage"]["completion_tokens"] / result["timing_ms"]["decode"]


def main() -> int:
    parser = cluster.parser(__doc__)
    parser.add_argument("--prompt-tokens", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--answers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    one, many = [], []
    with cluster.cluster(args) as router:
        ask(args, router, 0, 1)  # pages and connections
        for seed in range(1, args.rounds + 1):
            one.append(ask(args, router, seed, 1))
            many.append(ask(args, router, 1000 + seed, args.answers))
        prefilled = router.metric("prefill-0", "baton_worker_prompt_tokens_total")
    rates = [statistics.median(map(rate, runs)) for runs in (one, many)]
    computed = args.prompt_tokens * (1 + 2 * args.rounds)
    return cluster.report(
        {"answers": args.answers, "one_tokens_per_s": round(rates[0], 1),
         "all_tokens_per_s": round(rates[1], 1),
         "times_the_tokens_per_s": round(rates[1] / rates[0], 2),
         "handoff_bytes_ratio": many[0]["path"]["handoff_bytes"] / one[0]["path"]["handoff_bytes"],
         "prefill_tokens_ratio": prefilled / computed}, BARS)


if __name__ == "__main__":
    raise SystemExit(main())
