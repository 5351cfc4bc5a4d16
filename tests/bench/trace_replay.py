#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""First-token times of a serving trace through running workers, under fcfs and srw.

    tests/bench/trace_replay.py --model MODEL --trace AzureLLMInferenceTrace_conv.csv

Prompt lengths are drawn from the trace, scaled so that its longest request fills the context.
What prompts of some lengths take alone is measured first; Poisson arrivals then keep the prefill
worker busy for --utilization of the time. The same requests at the same times go through a cluster
under each policy, each with an answer of one token, so that the prefill worker is all there is to
wait for. tests/common/sched/policy_replay_bench.cc does the same in virtual time, with thousands
of requests.

Prints one JSON object; exit status 1 when a bar is missed: mean at least 1.5 times better than
fcfs, 99th percentile at most 1.3 times that of fcfs, nobody beyond the bound of its wait.
"""
import csv
import json
import pathlib
import random
import statistics
import subprocess
import threading
import time

import cluster

CALIBRATION = (32, 512, 2048, 4096, 8000)
PATIENCE, PATIENT_TOKENS, AGING_S = 10, 2000, 30  # as common/sched/policies.h has them


def read_lengths(args) -> list[int]:
    with args.trace.open() as file:
        rows = [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(file)]
    scale = args.context / max(prompt + answer for prompt, answer in rows)
    return [max(1, round(prompt * scale)) for prompt, _ in rows]


def line_of(chance: random.Random, length: int) -> str:
    return json.dumps({"prompt_ids": chance.choices(range(1000, 9000), k=length), "max_tokens": 1,
                       "temperature": 0, "ignore_eos": True, "path": "split"}) + "\n"


class Client:
    """One process that sends each line as it gets it."""

    def __init__(self, args, router: str, most: int):
        command = cluster.generate(args, router, ["--input", "-", "--concurrency", str(most), "--deadline", "900s"])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.results = []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        self.results = [json.loads(line) for line in self.process.stdout]

    def send(self, line: str) -> None:
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def finish(self) -> list[dict]:
        self.process.stdin.close()
        self.reader.join()
        self.process.wait()
        for result in self.results:
            if "error" in result:
                cluster.fail(str(result["error"]))
        return self.results


def calibrate(args) -> list[tuple[int, float]]:
    """Seconds that prompts of some lengths take alone, best of two."""
    chance = random.Random(0)
    costs = []
    with cluster.cluster(args) as router:
        for length in CALIBRATION:
            times = []
            for _ in range(1 if length > 4000 else 3):
                client = Client(args, router, 1)
                client.send(line_of(chance, length))
                timing = client.finish()[0]["timing_ms"]
                times.append((timing["prefill"]) / 1000)
            costs.append((length, min(times)))
    return costs


def work(costs: list[tuple[int, float]], length: int) -> float:
    for (a, at_a), (b, at_b) in zip(costs, costs[1:]):
        if length <= b or (b, at_b) == costs[-1]:
            return max(0.0, at_a + (at_b - at_a) * (length - a) / (b - a))
    raise AssertionError


def replay(args, policy: str, arrivals: list[tuple[float, str]]) -> tuple[list[dict], float]:
    """Results in order, and how late the latest line was sent."""
    flags = args.worker_flag
    args.worker_flag = flags + [f"--policy={policy}", "--max-sequences=256"]
    args.router_flag = [f"--policy={policy}", f"--max-queue={len(arrivals) + 1}",
                        "--max-queued-prompt-tokens=100000000"]
    with cluster.cluster(args) as router:
        client = Client(args, router, len(arrivals))
        start, late = time.monotonic() + 0.5, 0.0
        for at, line in arrivals:
            time.sleep(max(0.0, start + at - time.monotonic()))
            late = max(late, time.monotonic() - start - at)
            client.send(line)
        results = client.finish()
    args.worker_flag = flags
    return results, late


def beyond_bound(times: list[float], lengths: list[int], costs, srw: list[dict], fcfs: list[dict]) -> int:
    """Requests that began later than all that came before they fell due would have been done under
    fcfs, and a chunk of the longest prompt beside."""
    step = work(costs, 8000) - work(costs, 8000 - 512)
    done = []
    for at, result in zip(times, fcfs):
        done.append(max([at + result["timing_ms"]["first_token"] / 1000] + done[-1:]))
    beyond = 0
    for at, length, result in zip(times, lengths, srw):
        due = at + min(PATIENCE * min(1, PATIENT_TOKENS / length) * work(costs, length), AGING_S)
        ahead = [end for other, end in zip(times, done) if other <= due][-1]
        beyond += at + result["timing_ms"]["queue"] / 1000 > max(due, ahead) + step
    return beyond


def summary(results: list[dict]) -> dict:
    first = [result["timing_ms"]["first_token"] / 1000 for result in results]
    return {"mean_s": round(statistics.mean(first), 3), "p50_s": round(cluster.quantile(first, 0.5), 3),
            "p99_s": round(cluster.quantile(first, 0.99), 3), "max_s": round(max(first), 3)}


def main() -> int:
    parser = cluster.parser(__doc__)
    parser.add_argument("--trace", type=pathlib.Path, required=True)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--requests", type=int, default=110)
    parser.add_argument("--utilization", type=float, default=0.85)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    lengths = chance.choices(read_lengths(args), k=args.requests)
    costs = calibrate(args)
    gaps = [chance.expovariate(1) for _ in lengths]
    scale = sum(work(costs, length) for length in lengths) / sum(gaps) / args.utilization
    times = [sum(gaps[:i + 1]) * scale for i in range(len(gaps))]
    arrivals = [(at, line_of(chance, length)) for at, length in zip(times, lengths)]
    fcfs, late_fcfs = replay(args, "fcfs", arrivals)
    srw, late_srw = replay(args, "srw", arrivals)
    figures = {"requests": len(lengths), "prompt_tokens_mean": round(statistics.mean(lengths)),
               "costs_s": costs, "span_s": round(times[-1], 1), "fcfs": summary(fcfs), "srw": summary(srw),
               "latest_send_s": round(max(late_fcfs, late_srw), 3),
               "mean_better": round(summary(fcfs)["mean_s"] / summary(srw)["mean_s"], 2),
               "p99_times": round(summary(srw)["p99_s"] / summary(fcfs)["p99_s"], 2),
               "beyond_bound": beyond_bound(times, lengths, costs, srw, fcfs)}
    return cluster.report(figures, {"mean_better": (">=", 1.5), "p99_times": ("<=", 1.3), "beyond_bound": ("<=", 0)})


if __name__ == "__main__":
    raise SystemExit(main())
