#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What sharing prefixes saves: 20 prompts with one prefix of 1,000 tokens, and a chat of five rounds.

    tests/integration/prefix_sharing.py --model MODEL [--path auto|split|local]

Prints one JSON object; exit status 1 when a bar is missed: from the second request on at least
992 prompt tokens cached, first token 8 times sooner, bytes for the missing blocks alone; in the
chat at most the new tokens and 32 computed in each round.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BATON_BIN", ROOT / "build/release/bin"))
PREFIX, OWN, REQUESTS, ROUNDS = 1000, 48, 20, 5
BLOCK_TOKENS = 32


def cluster(command, folder, *flags):
    subprocess.run([ROOT / "deploy/local/cluster.sh", command, "--dir", folder, "--quiet", *flags], check=True)


def ask(router, path, ids, tokens):
    """The result of one request; one at a time, as a process of its own."""
    request = ["--prompt-ids", ",".join(map(str, ids)), "--max-tokens", str(tokens), "--ignore-eos",
               "--temperature", "0", "--path", path, "--json"]
    out = subprocess.run([BIN / "baton", "generate", "--router", router, *request], check=True,
                         capture_output=True, text=True)
    return json.loads(out.stdout)


def blocks(tokens):
    return -(-tokens // BLOCK_TOKENS)


def measure_prefix(router, path, draw):
    prefix = draw(PREFIX)
    results = [ask(router, path, prefix + draw(OWN), 8) for _ in range(REQUESTS)]
    first_ms = [result["timing_ms"]["first_token"] for result in results]
    cached = [result["usage"]["cached_prompt_tokens"] for result in results]
    sent = [result["path"]["handoff_bytes"] for result in results]
    kept = [result["path"]["handoff_cached_tokens"] for result in results]
    figures = {"first_token_ms_cold": round(first_ms[0], 2),
               "first_token_ms_warm_p50": round(statistics.median(first_ms[1:]), 2),
               "first_token_ms_warm_max": round(max(first_ms[1:]), 2),
               "first_token_times": round(first_ms[0] / statistics.median(first_ms[1:]), 2),
               "cached_min": min(cached[1:]), "bytes_cold": sent[0], "bytes_warm_max": max(sent[1:])}
    missed = []
    if min(cached[1:]) < 992:
        missed.append("cached prompt tokens")
    if figures["first_token_times"] < 8:
        missed.append("first token")
    if sent[0] > 0:  # split: bytes are those of the blocks that were not there
        block_bytes = sent[0] // blocks(PREFIX + OWN)
        if any(s != (blocks(PREFIX + OWN) - k // BLOCK_TOKENS) * block_bytes for s, k in zip(sent, kept)):
            missed.append("bytes")
        if min(kept[1:]) < 992:
            missed.append("blocks kept by the decode worker")
    return figures, missed


def measure_chat(router, path, draw):
    conversation, before, rounds = draw(300), 0, []
    for _ in range(ROUNDS):
        result = ask(router, path, conversation, 100)
        usage = result["usage"]
        rounds.append({"prompt": usage["prompt_tokens"], "new": len(conversation) - before,
                       "computed": usage["prompt_tokens"] - usage["cached_prompt_tokens"],
                       "bytes": result["path"]["handoff_bytes"],
                       "first_token_ms": round(result["timing_ms"]["first_token"], 2),
                       "reason": result["path"]["reason"]})
        conversation = conversation + result["token_ids"]
        before = len(conversation)
        conversation = conversation + draw(40)
    missed = ["chat"] if any(r["computed"] > r["new"] + 32 for r in rounds) else []
    return rounds, missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--path", default="auto", choices=["auto", "split", "local"])
    parser.add_argument("--transport", default="auto")
    options = parser.parse_args()
    chance = random.Random(1)

    def draw(count):
        return [chance.randrange(1000, 9000) for _ in range(count)]

    with tempfile.TemporaryDirectory(prefix="baton-prefix-") as folder:
        cluster("up", folder, "--model", options.model, "--port", "0", "--transport", options.transport)
        try:
            router = (pathlib.Path(folder) / "router.address").read_text().strip()
            ask(router, options.path, draw(PREFIX + OWN), 8)  # warm pages, cold prefixes
            prefix, missed = measure_prefix(router, options.path, draw)
            chat, missed_chat = measure_chat(router, "auto" if options.path == "split" else options.path, draw)
        finally:
            cluster("down", folder)
    print(json.dumps({"prefix": prefix, "chat": chat, "missed": missed + missed_chat}, indent=1))
    return 1 if missed + missed_chat else 0


if __name__ == "__main__":
    sys.exit(main())
