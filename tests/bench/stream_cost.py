#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time per streamed token outside of the model: workers, router and client.

The model is the fake one, whose steps wait. The decode worker's thread that runs it is told
apart: most of it are hashes of the fake model over all tokens so far. Prints one JSON object per
number of streams; exit status 1 when a bar for two Zen 4 cores is missed.
"""
import pathlib
import resource

import cluster

BARS = {1: {"cpu_us_per_token": ("<=", 300)}, 8: {"cpu_us_per_token": ("<=", 80)}}


def cpu_us(pid: int) -> dict[str, float]:
    """Time of every thread."""
    return {thread.name: int((thread / "schedstat").read_text().split()[0]) / 1000
            for thread in pathlib.Path(f"/proc/{pid}/task").iterdir()}


def since(pid: int, before: dict[str, float]) -> list[float]:
    """What threads have spent, the busiest last."""
    return sorted(time - before.get(thread, 0) for thread, time in cpu_us(pid).items())


def children_us() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e6 * (usage.ru_utime + usage.ru_stime)


def measure(args, router: cluster.Router, streams: int) -> dict:
    requests = [{"prompt_ids": [3, 4, 5 + i], "temperature": 0, "max_tokens": args.tokens,
                 "ignore_eos": True, "draft_tokens": 0} for i in range(streams)]
    before = {name: cpu_us(pid) for name, pid in router.processes().items()}
    client = children_us()
    results = cluster.answers(args, router, requests, streams)
    client = children_us() - client
    tokens = sum(result["usage"]["completion_tokens"] for result in results)
    spent = {name: since(pid, before[name]) for name, pid in router.processes().items()}
    model = spent["decode-0"].pop()
    figures = {f"{name}_us": sum(times) / tokens for name, times in sorted(spent.items())}
    figures["client_us"] = client / tokens
    return {"streams": streams, "tokens": tokens,
            "cpu_us_per_token": round(sum(figures.values()), 1),
            **{name: round(value, 1) for name, value in figures.items()},
            "model_thread_us": round(model / tokens, 1)}


def main() -> int:
    parser = cluster.parser(__doc__, model="fake")
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--step", default="3ms", help="time that a step of the model takes")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    args = parser.parse_args()
    args.worker_flag += ["--fake-step-delay", args.step]
    status = 0
    with cluster.cluster(args) as router:
        measure(args, router, max(args.streams))  # pages and connections
        for streams in args.streams:
            status |= cluster.report(measure(args, router, streams), BARS.get(streams, {}))
    return status


if __name__ == "__main__":
    raise SystemExit(main())
