#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Constrained answers through a running cluster, judged by python3-jsonschema and re.

    tests/integration/constraints.py [--model MODEL] [--count 500] [--max-tokens 160]

25 schemas and 10 regular expressions (constraint_cases.py), at temperature 0.8 with a seed each,
half of them split and half local, several at once. Every answer that ends with "stop" must be
valid, at most 5 % may end otherwise; a sample is asked for again on the other path and must be
the same, token for token, with penalties, stop texts, log-probabilities and greedy, too.
Prints one JSON object; exit status 1 when a bar is missed, 77 without jsonschema.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

try:
    import jsonschema
except ImportError:
    print("python3-jsonschema is not installed")
    sys.exit(77)

import constraint_cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BATON_BIN", ROOT / "build/release/bin"))
CACHE = pathlib.Path(os.environ.get("BATON_CACHE_DIR", pathlib.Path.home() / ".cache/baton"))
DEMO = CACHE / "models/SmolLM2-135M-Instruct.Q4_1.gguf"


def cluster(command, folder, *flags):
    subprocess.run([ROOT / "deploy/local/cluster.sh", command, "--dir", folder, "--quiet", *flags], check=True)


def generate(router, folder, lines, concurrency):
    file = pathlib.Path(folder) / "input.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = subprocess.run([BIN / "baton", "generate", "--router", router, "--input", file, "--json",
                          "--concurrency", str(concurrency)], check=False, capture_output=True, text=True)
    answers = [json.loads(line) for line in out.stdout.splitlines()]
    if len(answers) != len(lines):
        raise RuntimeError(f"{len(answers)} answers to {len(lines)} lines: {out.stderr[-2000:]}")
    return answers


def cases():
    """(name, request, judge): the judge gives what is wrong with a text, or None."""
    def schema_judge(schema):
        validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())

        def judge(text):
            try:
                error = next(validator.iter_errors(json.loads(text)), None)
            except ValueError as problem:
                return str(problem)
            return error and error.message
        return judge

    def regex_judge(pattern):
        return lambda text: None if re.fullmatch(pattern, text) else "no match"

    for name, prompt, schema in constraint_cases.SCHEMAS:
        yield f"schema {name}", prompt, {"json_schema": schema}, schema_judge(schema)
    for name, prompt, pattern in constraint_cases.REGEXES:
        yield f"regex {name}", prompt, {"regex": pattern}, regex_judge(pattern)


def requests(count, max_tokens, chat):
    every = list(cases())
    lines, judges = [], []
    for i in range(count):
        name, prompt, constraint, judge = every[i % len(every)]
        asked = {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
        lines.append({**asked, "constraint": constraint, "max_tokens": max_tokens, "temperature": 0.8, "seed": i,
                      "path": "split" if i % 2 else "local", "request_id": f"{name} {i}"})
        judges.append(judge)
    return lines, judges


def judge_all(lines, answers, judges):
    ends, wrong = {}, []
    for line, answer, judge in zip(lines, answers, judges):
        reason = answer.get("finish_reason") or "error"
        ends[reason] = ends.get(reason, 0) + 1
        if reason == "error":
            wrong.append([line["request_id"], json.dumps(answer)[:300]])
        elif reason == "stop" and (problem := judge(answer["text"])) is not None:
            wrong.append([line["request_id"], answer["text"][:300], problem[:200]])
    return ends, wrong


def compare_paths(router, folder, lines):
    """Answers that differ between the paths, with what goes together with constraints."""
    extras = [{}, {"frequency_penalty": 0.5, "repetition_penalty": 1.2}, {"logprobs": 2}, {"top_p": 0.9, "top_k": 40},
              {"stop": [","], "min_tokens": 2}, {"temperature": 0}]
    sample = [{**line, **extras[i % len(extras)]} for i, line in enumerate(lines)]
    ways = [generate(router, folder, [{**line, "path": path, "prefix_cache": False} for line in sample], concurrency)
            for path, concurrency in (("split", 6), ("local", 1))]
    keys = ("token_ids", "text", "finish_reason", "logprobs")
    return [line["request_id"] for line, a, b in zip(sample, *ways)
            if any(a.get(key) != b.get(key) for key in keys)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(DEMO) if DEMO.exists() else "embedded")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--concurrency", type=int, default=8)
    options = parser.parse_args()
    lines, judges = requests(options.count, options.max_tokens, chat=options.model != "embedded")
    with tempfile.TemporaryDirectory(prefix="baton-constraints-") as folder:
        cluster("up", folder, "--model", options.model, "--port", "0")
        try:
            router = (pathlib.Path(folder) / "router.address").read_text().strip()
            start = time.monotonic()
            answers = generate(router, folder, lines, options.concurrency)
            seconds = time.monotonic() - start
            different = compare_paths(router, folder, lines[:min(42, options.count)])
        finally:
            cluster("down", folder)
    ends, wrong = judge_all(lines, answers, judges)
    unfinished = sum(count for reason, count in ends.items() if reason != "stop")
    missed = []
    if wrong:
        missed.append("valid")
    if unfinished > options.count * 0.05:
        missed.append("ends with stop")
    if different:
        missed.append("equal on both paths")
    tokens = sum(answer["usage"]["completion_tokens"] for answer in answers if "usage" in answer)
    print(json.dumps({"model": options.model, "answers": options.count, "ends": ends, "wrong": wrong[:10],
                      "different": different, "tokens": tokens, "seconds": round(seconds, 1), "missed": missed},
                     indent=1, ensure_ascii=False))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
