#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the hand-off costs: a prompt of 1,508 tokens over shm, over tcp, and local.

    tests/integration/handoff_cost.py --model MODEL --golden GOLDEN.json [--case long1500]

Prints JSON per path: milliseconds from the end of the prompt's last chunk to the start of the
decode worker's first step (`transfer`), and to the first token; the median of --reps requests.
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


def measure(model, ids, transport, path, reps):
    with tempfile.TemporaryDirectory(prefix="baton-handoff-") as folder:
        cluster("up", folder, "--model", model, "--port", "0", "--transport", transport)
        try:
            router = (pathlib.Path(folder) / "router.address").read_text().strip()
            ask(router, ids, path)  # warm
            timings = [ask(router, ids, path) for _ in range(reps)]
        finally:
            cluster("down", folder)
    return {key: round(statistics.median(t[key] for t in timings), 2) for key in ("transfer", "first_token")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--golden", required=True)
    parser.add_argument("--case", default="long1500")
    parser.add_argument("--reps", type=int, default=5)
    options = parser.parse_args()
    cases = {c["name"]: c["prompt_ids"] for c in json.loads(pathlib.Path(options.golden).read_text())}
    ids = cases[options.case]
    print(json.dumps({"prompt_tokens": len(ids),
                      "shm": measure(options.model, ids, "shm", "split", options.reps),
                      "tcp": measure(options.model, ids, "tcp", "split", options.reps),
                      "local": measure(options.model, ids, "auto", "local", options.reps)}))


if __name__ == "__main__":
    main()
