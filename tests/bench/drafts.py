#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Guessed tokens on and off in turn, one stream: the same tokens, and how many times as fast.

Every prompt is answered without guesses and with them, one right behind the other, the order changing
from round to round; the median of the rounds' ratios of decode times counts. Answers that take less than
--least-ms are left out of the bars: their times are mostly noise. Prints one JSON object per prompt and
one for all; exit status 1 when tokens differ or a bar is missed.
"""
import json
import pathlib
import statistics

import cluster

# Times as fast: wherever so many tokens come a step, and anywhere.
PAYS_FROM, LEAST_WHERE_IT_PAYS, LEAST = 2.0, 1.5, 0.97


def requests(args) -> list[dict]:
    """Lines with "turns" (the first counts), or requests as `baton generate --input` takes them."""
    lines = [json.loads(line) for line in args.prompts.read_text().splitlines() if line.strip()]
    made = []
    for line in lines[:args.requests]:
        if "turns" in line:
            line = {"messages": [{"role": "user", "content": line["turns"][0]}]}
        made.append({"temperature": 0, "max_tokens": args.tokens, **line})
    return made


def round_of(args, router: str, lines: list[dict], off_first: bool) -> list[tuple[dict, dict]]:
    """Each prompt's answers without and with guesses, one right behind the other."""
    off = [{**line, "draft_tokens": 0} for line in lines]
    mixed = cluster.answers(args, router, [line for pair in zip(*((off, lines) if off_first else (lines, off)))
                                   for line in pair])
    first, second = mixed[0::2], mixed[1::2]
    return list(zip(first, second) if off_first else zip(second, first))


def decode_ms(result: dict) -> float:
    return result["timing_ms"]["decode"]


def compare(index: int, pairs: list[tuple[dict, dict]], least_ms: float) -> dict:
    same = all(run["token_ids"] == pairs[0][0]["token_ids"] for pair in pairs for run in pair)
    per_step = statistics.median(on["speculation"]["tokens_per_step"] for _, on in pairs)
    bar = LEAST_WHERE_IT_PAYS if per_step >= PAYS_FROM else LEAST
    off_ms = statistics.median(decode_ms(off) for off, _ in pairs)
    ratio = statistics.median(decode_ms(off) / max(decode_ms(on), 1e-3) for off, on in pairs)
    counts = off_ms >= least_ms
    return {"prompt": index, "tokens": pairs[0][0]["usage"]["completion_tokens"],
            "same_tokens": same, "tokens_per_step": round(per_step, 2), "off_ms": round(off_ms, 1),
            "times_as_fast": round(ratio, 3), "counts": counts,
            "met": same and (ratio >= bar or not counts)}


def main() -> int:
    parser = cluster.parser(__doc__)
    parser.add_argument("--prompts", type=pathlib.Path, required=True, help="JSON lines")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--least-ms", type=float, default=100)
    args = parser.parse_args()
    lines = requests(args)
    with cluster.cluster(args) as router:
        cluster.answers(args, router, lines[:4])  # pages and connections
        rounds = [round_of(args, router, lines, turn % 2 == 0) for turn in range(args.rounds)]
    rows = [compare(i, [pairs[i] for pairs in rounds], args.least_ms) for i in range(len(lines))]
    for row in rows:
        print(json.dumps(row))
    counted = [row["times_as_fast"] for row in rows if row["counts"]]
    return cluster.report({"prompts": len(rows), "counted": len(counted),
                           "times_as_fast_median": statistics.median(counted or [1.0]),
                           "times_as_fast_least": min(counted, default=1.0),
                           "not_met": sum(not row["met"] for row in rows)}, {"not_met": ("<=", 0)})


if __name__ == "__main__":
    raise SystemExit(main())
