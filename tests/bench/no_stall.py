#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stream beside a long prompt on the same cores: its gaps, its rate, and the prompt's time.

Prints one JSON object; exit status 1 when a bar for two Zen 4 cores and SmolLM2-135M Q4_1 is
missed. Gaps are those between pieces of text as the client's reader sees them.
"""
import json
import os
import pathlib
import subprocess
import threading
import time

import cluster

BARS = {"gap_ms_max": ("<=", 40), "rate_share": (">=", 0.45), "prompt_times": ("<=", 2.2)}
WARM_UP_S = 0.5
LEAD_S = 2.0


class Stream:
    """`baton generate` in the background, with the time of every piece of text."""

    def __init__(self, command: list[str]):
        self.times: list[float] = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        while os.read(self.process.stdout.fileno(), 65536):
            self.times.append(time.monotonic())

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.reader.join()

    def between(self, begin: float, end: float) -> list[float]:
        return [t for t in self.times if begin <= t <= end]


def rate(times: list[float]) -> float:
    return (len(times) - 1) / (times[-1] - times[0])


def prompt_seconds(args, router: str, ids: str) -> tuple[float, float]:
    """Start, and seconds until the first token as the service measures them."""
    start = time.monotonic()
    done = subprocess.run(
        cluster.generate(args, router, ["--prompt-ids", ids, "--max-tokens", "1", "--json"]),
        capture_output=True, text=True)
    if done.returncode != 0:
        cluster.fail(f"the prompt failed: {done.stdout[-500:]}")
    timing = json.loads(done.stdout)["timing_ms"]
    return start, (timing["queue"] + timing["prefill"]) / 1000


def main() -> int:
    parser = cluster.parser(__doc__)
    parser.add_argument("--golden", type=pathlib.Path, required=True,
                        help="JSON list of cases with \"name\" and \"prompt_ids\"")
    parser.add_argument("--case", default="long6000")
    parser.add_argument("--tokens", type=int, default=4000)
    args = parser.parse_args()
    cases = {case["name"]: case["prompt_ids"] for case in json.loads(args.golden.read_text())}
    ids = ",".join(map(str, cases[args.case]))
    with cluster.cluster(args) as router:
        _, alone = prompt_seconds(args, router, ids)
        # Without guesses a piece of text is a token.
        stream = Stream(cluster.generate(args, router, [
            "--prompt", "Once upon a time", "--ignore-eos", "--draft-tokens", "0",
            "--max-tokens", str(args.tokens)]))
        time.sleep(LEAD_S)
        start, beside = prompt_seconds(args, router, ids)
        end = time.monotonic()
        time.sleep(LEAD_S)
        stream.stop()
    before, during = stream.between(start - LEAD_S + WARM_UP_S, start), stream.between(start, end)
    after = stream.between(end + WARM_UP_S, end + LEAD_S)
    if min(len(before), len(during), len(after)) < 2:
        cluster.fail("the stream gave no text, or ended too early: raise --tokens")
    # The longer the stream, the slower: what it would do alone in between.
    alone_rate = (rate(before) + rate(after)) / 2
    return cluster.report(
        {"prompt_tokens": len(cases[args.case]), "prompt_alone_s": round(alone, 2),
         "prompt_beside_s": round(beside, 2), "prompt_times": round(beside / alone, 2),
         "rate_before": round(rate(before), 1), "rate_beside": round(rate(during), 1),
         "rate_after": round(rate(after), 1), "rate_share": round(rate(during) / alone_rate, 3),
         "gap_ms_max": round(1000 * max(b - a for a, b in zip(during, during[1:])), 1)}, BARS)


if __name__ == "__main__":
    raise SystemExit(main())
