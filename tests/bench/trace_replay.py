#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""First-token times of a serving trace through running workers, under fcfs and srw.

    tests/bench/trace_replay.py --model MODEL --trace AzureLLMInferenceTrace_conv.csv

Prompt lengths are drawn from the trace, scaled so that its longest request fills the context.
What prompts of some lengths take of the prefill worker's time is measured first, and gives the rate
of Poisson arrivals that keeps it busy for --utilization of the time. The same requests at the same
times then go through a cluster under each policy, with answers so short that the prefill worker is
all there is to wait for. tests/common/sched/policy_replay_bench.cc does the same in virtual time;
where it is built, it says first what to expect.

Prints a table, or with --json one JSON object; exit status 1 when a bar is missed: mean at least
1.5 times better than fcfs, 99th percentile at most 1.3 times that of fcfs, nobody beyond the bound
of its wait. Needs the machine for itself: two runs are compared.
"""
import argparse
import csv
import itertools
import json
import pathlib
import random
import statistics
import subprocess
import tempfile
import threading
import time

import cluster

CALIBRATION = (32, 128, 512, 1024, 2048, 3072, 4096, 6144, 8000)
CHUNK = 512
PATIENCE, PATIENT_TOKENS, AGING_S = 12, 600, 30  # as common/sched/policies.h has them
BARS = {"mean_better": (">=", 1.5), "p99_times": ("<=", 1.3), "beyond_bound": ("<=", 0)}


class Costs:
    """Seconds of a prompt: of each step, each token, each position a token attends to."""

    def __init__(self, measured: list[tuple[int, float]]):
        self.step = self.token = self.attended = 0.0
        # Least squares of relative residuals, none below zero: coordinate descent.
        rows = [([f / time for f in self.features(length)], 1.0) for length, time in measured]
        x = [0.0] * 3
        for _ in range(20000):
            for i in range(3):
                rest = sum(f[i] * (y - sum(f[j] * x[j] for j in range(3) if j != i)) for f, y in rows)
                x[i] = max(0.0, rest / sum(f[i] * f[i] for f, _ in rows))
        self.step, self.token, self.attended = x

    @staticmethod
    def features(length: int) -> list[float]:
        return [-(-length // CHUNK), length, length * length / 2]

    def of(self, length: int) -> float:
        return sum(a * b for a, b in zip((self.step, self.token, self.attended), self.features(length)))

    def chunk(self, end: int) -> float:
        return self.of(end) - self.of(end - CHUNK)


def read_lengths(args: argparse.Namespace) -> list[int]:
    with args.trace.open() as file:
        rows = [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(file)]
    scale = args.context / max(prompt + answer for prompt, answer in rows)
    longest = args.context - args.answer_tokens
    return [min(max(1, round(prompt * scale)), longest) for prompt, _ in rows]


def line_of(chance: random.Random, length: int, answer_tokens: int) -> str:
    return json.dumps({"prompt_ids": chance.choices(range(1000, 9000), k=length), "temperature": 0,
                       "max_tokens": answer_tokens, "ignore_eos": True, "path": "split"}) + "\n"


class Client:
    """One process that sends each line as it gets it."""

    def __init__(self, args: argparse.Namespace, router: str, most: int):
        command = cluster.generate(args, router, ["--input", "-", "--concurrency", str(most), "--deadline", "900s"])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.results: list[dict] = []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self) -> None:
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


def busy_seconds(router: cluster.Router) -> float:
    """Of the prefill worker so far: in the model, and around its steps."""
    return (router.metric("prefill-0", "baton_worker_step_seconds_sum") +
            router.metric("prefill-0", "baton_worker_overhead_seconds_total"))


def calibrate(args: argparse.Namespace, router: cluster.Router) -> Costs:
    """Warms the workers up, too. Prompts that fill a step come together, so that, as later, one is
    computed while that before it is handed over and decoded beside it."""
    chance = random.Random(0)
    measured = []
    for length in CALIBRATION:
        count = 2 if length > 4096 else 3 if length > 2048 else 4
        before = busy_seconds(router)
        client = Client(args, router, count if length >= CHUNK else 1)
        for _ in range(count):
            client.send(line_of(chance, length, args.answer_tokens))
        client.finish()
        measured.append((length, (busy_seconds(router) - before) / count))
    return Costs(measured)


class Arrivals:
    """The requests of a run; a longer run begins with those of a shorter one."""

    def __init__(self, args: argparse.Namespace, costs: Costs):
        chance, gaps = random.Random(f"lengths {args.seed}"), random.Random(f"gaps {args.seed}")
        lengths = chance.choices(read_lengths(args), k=args.most_requests)
        work = list(itertools.accumulate(costs.of(length) for length in lengths))
        count = sum(each <= args.seconds * args.utilization for each in work)
        times = list(itertools.accumulate(gaps.expovariate(1) for _ in range(count)))
        scale = work[count - 1] / times[-1] / args.utilization
        self.lengths = lengths[:count]
        self.times = [at * scale for at in times]
        self.lines = [line_of(chance, length, args.answer_tokens) for length in self.lengths]


class Run:
    """What became of the arrivals under one policy."""

    def __init__(self, results: list[dict], busy: float, late: float, span: float):
        self.first = [result["timing_ms"]["first_token"] / 1000 for result in results]
        self.wait = [result["timing_ms"]["queue"] / 1000 for result in results]
        self.busy, self.late, self.span = busy, late, span

    def summary(self) -> dict:
        return {"mean_s": round(statistics.mean(self.first), 3),
                "p50_s": round(cluster.quantile(self.first, 0.5), 3),
                "p99_s": round(cluster.quantile(self.first, 0.99), 3),
                "max_s": round(max(self.first), 3), "longest_wait_s": round(max(self.wait), 3),
                "utilization": round(self.busy / self.span, 3)}


def replay(args: argparse.Namespace, policy: str, arrivals: Arrivals | None) -> tuple[Run, Costs, Arrivals]:
    """Without `arrivals`, at the rate that this cluster's costs give."""
    flags = args.worker_flag
    args.worker_flag = flags + [f"--policy={policy}", "--max-sequences=256"]
    args.router_flag = [f"--policy={policy}", f"--max-queue={args.most_requests}",
                        "--max-queued-prompt-tokens=100000000"]
    with cluster.cluster(args) as router:
        costs = calibrate(args, router)
        arrivals = arrivals or Arrivals(args, costs)
        client = Client(args, router, min(1024, len(arrivals.lines)))
        busy = busy_seconds(router)
        start, late = time.monotonic() + 0.5, 0.0
        for at, line in zip(arrivals.times, arrivals.lines):
            time.sleep(max(0.0, start + at - time.monotonic()))
            late = max(late, time.monotonic() - start - at)
            client.send(line)
        results = client.finish()
        span = time.monotonic() - start
        busy = busy_seconds(router) - busy
    args.worker_flag = flags
    return Run(results, busy, late, span), costs, arrivals


def bounds(arrivals: Arrivals, costs: Costs, fcfs: Run, srw: Run) -> list[float]:
    """The longest that each may wait under srw: until it falls due, or until what came before that
    is done under fcfs; beside it the step that runs then, and what the steps of this run took
    longer in all than those of the other."""
    done = list(itertools.accumulate((at + first for at, first in zip(arrivals.times, fcfs.first)), max))
    allowed = costs.chunk(8000) + max(0.0, srw.busy - fcfs.busy)
    result = []
    for at, length in zip(arrivals.times, arrivals.lengths):
        due = at + min(PATIENCE * min(1, PATIENT_TOKENS / length) ** 0.5 * costs.of(length), AGING_S)
        ahead = [end for other, end in zip(arrivals.times, done) if other <= due][-1]
        result.append(max(due, ahead) + allowed - at)
    return result


def predict(args: argparse.Namespace, arrivals: Arrivals, costs: Costs) -> str:
    """The line of policy_replay_bench for the same arrivals."""
    bench = args.bin.parent / "tests/policy_replay_bench"
    if not bench.exists():
        return ""
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for at, length in zip([0.0] + arrivals.times, arrivals.lengths + [args.context]):
            file.write(f"2023-01-01 {int(at) // 3600}:{int(at) // 60 % 60}:{at % 60:.6f},{length},0\n")
        file.flush()
        flags = {"requests": len(arrivals.lengths), "seeds": 1, "arrivals": "trace", "context": args.context,
                 "utilization": args.utilization, "step-us": costs.step * 1e6, "token-us": costs.token * 1e6,
                 "attended-ns": costs.attended * 1e9}
        command = [str(bench), "--trace", file.name] + [f"--{name}={value}" for name, value in flags.items()]
        return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[1].strip()


def describe(figures: dict) -> str:
    names = ["mean_s", "p50_s", "p99_s", "max_s", "longest_wait_s", "utilization"]
    lines = [["policy", *names]] + [[policy, *(str(figures[policy][name]) for name in names)]
                                    for policy in ("fcfs", "srw")]
    text = ["  ".join(cell.rjust(14) for cell in line) for line in lines]
    text.append("{requests} requests; costs {costs}, before the second run {costs_again}".format(**figures))
    text.append("srw: mean {mean_better}x better, p99 {p99_times}x; bound of the longest wait "
                "{bound_of_longest_wait_s} s, nobody closer to its own than {closest_to_bound_s} s, beyond it "
                "{beyond_bound}".format(**figures))
    if figures["predicted"]:
        text.append("predicted by policy_replay_bench: " + figures["predicted"])
    text.append("missed: " + (", ".join(cluster.misses(figures, BARS)) or "none"))
    return "\n".join(text)


def main() -> int:
    parser = cluster.parser(__doc__)
    parser.add_argument("--trace", type=pathlib.Path, required=True)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--seconds", type=float, default=220, help="of arrivals under each policy")
    parser.add_argument("--most-requests", type=int, default=2000)
    parser.add_argument("--answer-tokens", type=int, default=2)
    parser.add_argument("--utilization", type=float, default=0.85)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    fcfs, costs, arrivals = replay(args, "fcfs", None)
    srw, again, _ = replay(args, "srw", arrivals)
    limits = bounds(arrivals, costs, fcfs, srw)
    beyond = [wait - limit for wait, limit in zip(srw.wait, limits)]
    figures = {"requests": len(arrivals.lengths), "prompt_tokens_mean": round(statistics.mean(arrivals.lengths)),
               "costs": {"step_us": round(costs.step * 1e6), "token_us": round(costs.token * 1e6),
                         "attended_ns": round(costs.attended * 1e9)},
               "costs_again": {"step_us": round(again.step * 1e6), "token_us": round(again.token * 1e6),
                               "attended_ns": round(again.attended * 1e9)},
               "fcfs": fcfs.summary(), "srw": srw.summary(),
               "predicted": predict(args, arrivals, costs),
               "latest_send_s": round(max(fcfs.late, srw.late), 3),
               "mean_better": round(fcfs.summary()["mean_s"] / srw.summary()["mean_s"], 2),
               "p99_times": round(srw.summary()["p99_s"] / fcfs.summary()["p99_s"], 2),
               "bound_of_longest_wait_s": round(limits[srw.wait.index(max(srw.wait))], 3),
               "closest_to_bound_s": round(-max(beyond), 3),
               "beyond_bound": sum(each > 0 for each in beyond)}
    if args.json:
        return cluster.report(figures, BARS)
    print(describe(figures))
    return 1 if cluster.misses(figures, BARS) else 0


if __name__ == "__main__":
    raise SystemExit(main())
