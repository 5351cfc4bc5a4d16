#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the hand-off costs: a prompt of 1,508 tokens over shm and over tcp, beside local.

    tests/integration/handoff_cost.py --model MODEL --golden GOLDEN.json [--case long1500]

Prints JSON per transport, in milliseconds: from the end of the prompt's last chunk to the start of
the decode worker's first step (`transfer`), and to the first token when the prompt is split or
computed on the decode worker (`local`), medians of --reps pairs.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BATON_BIN", ROOT / "build/release/bin"))


def cluster(command, folder, *flags):
    subprocess.run([ROOT / "deploy/local/cluster.sh", command, "--dir", folder, "--quiet", *flags], check=True)


def ask(router, ids, path):
    request = ["--prompt-ids", ",".join(map(str, ids)), "--max-tokens", "8", "--temperature", "0", "--json",
               "--no-prefix-cache"]  # the same prompt every time
    out = subprocess.run([BIN / "baton", "generate", "--router", router, "--path", path, *request],
                         check=True, capture_output=True, text=True)
    return json.loads(out.stdout)["timing_ms"]


def measure(model, ids, transport, reps):
    """Split and local requests in turn on one cluster: the machine's moods meet both alike."""
    timings = {"split": [], "local": []}
    with tempfile.TemporaryDirectory(prefix="baton-handoff-") as folder:
        cluster("up", folder, "--model", model, "--port", "0", "--transport", transport)
        try:
            router = (pathlib.Path(folder) / "router.address").read_text().strip()
            for path in timings:
                ask(router, ids, path)  # warm
            for _ in range(reps):
                for path, results in timings.items():
                    results.append(ask(router, ids, path))
        finally:
            cluster("down", folder)
    first = {path: [t["first_token"] for t in results] for path, results in timings.items()}
    return {"transfer": round(statistics.median(t["transfer"] for t in timings["split"]), 2),
            **{f"{path}_first_token": round(statistics.median(times), 2) for path, times in first.items()},
            "split_minus_local": round(statistics.median(s - l for s, l in zip(first["split"], first["local"])), 2),
            "best_minus_best": round(min(first["split"]) - min(first["local"]), 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--golden", required=True)
    parser.add_argument("--case", default="long1500")
    parser.add_argument("--reps", type=int, default=9)
    options = parser.parse_args()
    cases = {c["name"]: c["prompt_ids"] for c in json.loads(pathlib.Path(options.golden).read_text())}
    ids = cases[options.case]
    print(json.dumps({"prompt_tokens": len(ids),
                      **{transport: measure(options.model, ids, transport, options.reps)
                         for transport in ("shm", "tcp")}}))


if __name__ == "__main__":
    main()
