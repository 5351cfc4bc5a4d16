#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reference answers through a running cluster: every model, path and transport.

    tests/integration/goldens.py [--full] [--only NAME]

Starts clusters with deploy/local/cluster.sh, sends the goldens with `baton generate --input`,
and compares token ids: with the goldens (--precision exact) and between the paths (both
precisions, greedy and with seeds at temperature 0.8). Without --full the 6,515-token prompt
and the second concurrency are left out, to fit into every test run.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BATON_BIN", ROOT / "build/release/bin"))
SHARED = pathlib.Path(os.environ.get("BATON_SHARED_DIR", ROOT.parent / "shared")) / "data/models"
CACHE = pathlib.Path(os.environ.get("BATON_CACHE_DIR", pathlib.Path.home() / ".cache/baton"))
DEMO = CACHE / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
SKIPPED = 77  # ctest's SKIP_RETURN_CODE


@dataclasses.dataclass
class Case:
    """One prompt: the ids expected, and how many of them are safe to compare."""
    name: str
    prompt_ids: list
    expected: list
    safe: int
    ignore_eos: bool = False


@dataclasses.dataclass
class Golden:
    name: str
    model: str
    cases: list


def own_glm() -> Golden:
    cases = json.loads((ROOT / "tests/data/own-glm/golden.json").read_text())["cases"]
    return Golden("own-glm", "embedded",
                  [Case(f"case {i}", c["prompt_ids"], c["greedy_ids"], len(c["greedy_ids"]))
                   for i, c in enumerate(cases)])


def tiny_chatglm() -> list:
    folder = SHARED / "golden-chatglm2-tiny"
    result = []
    for name, files in (("a", ["model.safetensors", "model.f16.safetensors", "model.bf16.safetensors",
                               "pytorch_model.f16.bin"]),
                        ("b", ["model.safetensors", "model.bf16.safetensors"])):
        golden = json.loads((folder / name / "golden.json").read_text())
        for file in files:
            case = Case(name, golden["prompt_ids"], golden["greedy_ids"], len(golden["greedy_ids"]), True)
            result.append(Golden(f"chatglm2-tiny {name} {file}",
                                 str(folder / name / file), [case]))
    return result


def stories() -> list:
    golden = json.loads((SHARED / "stories260k/golden.json").read_text())
    cases = [Case(c["prompt"] or "(empty)", c["prompt_ids"], c["greedy_ids"], c["safe_len"], True)
             for c in golden["cases"]]
    return [Golden(f"stories260k {kind}", str(SHARED / "stories260k" / path), cases)
            for kind, path in (("safetensors", "hf"), ("gguf", "gguf/stories260K.F32.gguf"))]


def smollm2(full: bool) -> Golden:
    cases = []
    for c in json.loads((SHARED / "smollm2/golden.json").read_text()):
        if full or len(c["prompt_ids"]) < 2000:
            close = [i for i, margin in enumerate(c["margin"]) if margin < 0.01]
            cases.append(Case(c["name"], c["prompt_ids"], c["greedy_ids"],
                              close[0] if close else len(c["greedy_ids"])))
    return Golden("SmolLM2", str(DEMO), cases)


class Cluster:
    def __init__(self, model: str, transport: str, precision: str, weights: str = "stored"):
        self.folder = tempfile.mkdtemp(prefix="baton-goldens-")
        subprocess.run([ROOT / "deploy/local/cluster.sh", "up", "--model", model, "--port", "0", "--quiet",
                        "--dir", self.folder, "--transport", transport, "--weights", weights,
                        "--", "--precision", precision],
                       check=True)
        self.router = (pathlib.Path(self.folder) / "router.address").read_text().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run([ROOT / "deploy/local/cluster.sh", "down", "--quiet", "--dir", self.folder], check=True)

    def generate(self, lines: list, path: str, concurrency: int) -> list:
        file = pathlib.Path(self.folder) / "input.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        out = subprocess.run([BIN / "baton", "generate", "--router", self.router, "--input", file, "--json",
                              "--path", path, "--concurrency", str(concurrency)],
                             check=False, capture_output=True, text=True)
        answers = [json.loads(line) for line in out.stdout.splitlines()]
        if len(answers) != len(lines):
            raise RuntimeError(f"{len(answers)} answers to {len(lines)} lines: {out.stderr[-2000:]}")
        return answers


def requests_of(golden: Golden, **sampling) -> list:
    return [{"prompt_ids": c.prompt_ids, "max_tokens": len(c.expected), "ignore_eos": c.ignore_eos, **sampling}
            for c in golden.cases]


def differences(golden: Golden, answers: list) -> list:
    found = []
    for case, answer in zip(golden.cases, answers):
        if "error" in answer:
            found.append(f"{case.name}: {answer['error']}")
        elif answer["token_ids"][:case.safe] != case.expected[:case.safe]:
            found.append(f"{case.name}: {answer['token_ids'][:case.safe]} is not {case.expected[:case.safe]}")
    return found


def ids_of(answers: list) -> list:
    return [answer.get("token_ids", answer.get("error")) for answer in answers]


class Run:
    def __init__(self, full: bool):
        self.full, self.failures, self.compared = full, [], 0

    def check(self, what: str, problems: list) -> None:
        self.compared += 1
        for problem in problems:
            self.failures.append(f"{what}: {problem}")
            print(f"FAILED {what}: {problem[:300]}", flush=True)

    def exact(self, golden: Golden) -> None:
        for transport in ("shm", "tcp"):
            with Cluster(golden.model, transport, "exact") as cluster:
                for concurrency in (1, 8) if self.full or golden.name != "SmolLM2" else (8,):
                    for path in ("split", "local") if transport == "shm" else ("split",):
                        answers = cluster.generate(requests_of(golden, temperature=0), path, concurrency)
                        what = f"{golden.name} exact {path} {transport} x{concurrency}"
                        self.check(what, differences(golden, answers))
                        used = {a["path"]["transport"] for a in answers if "path" in a}
                        if path == "split" and not used <= {transport, ""}:
                            self.check(what, [f"went over {used}"])

    def equal_paths(self, golden: Golden, precision: str, weights: str = "stored") -> None:
        sampled = requests_of(golden, temperature=0.8, top_p=0.95)
        for i, request in enumerate(sampled):
            request["seed"] = 1000 + i
        lines = requests_of(golden, temperature=0) + sampled
        answers = {}
        for transport in ("shm", "tcp"):
            with Cluster(golden.model, transport, precision, weights) as cluster:
                if transport == "shm":
                    answers["local x1"] = cluster.generate(lines, "local", 1)
                    answers["local x8"] = cluster.generate(lines, "local", 8)
                answers[f"split {transport} x8"] = cluster.generate(lines, "split", 8)
        reference = ids_of(answers["local x1"])
        for name, got in answers.items():
            wrong = [f"line {i}: {b} is not {a}" for i, (a, b) in enumerate(zip(reference, ids_of(got))) if a != b]
            self.check(f"{golden.name} {precision} {weights} {name} equals local x1", wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    goldens = [own_glm()]
    if SHARED.exists():
        goldens += tiny_chatglm() + stories()
        if DEMO.exists():
            goldens.append(smollm2(options.full))
    elif os.environ.get("BATON_REQUIRE_DATA"):
        print(f"needs {SHARED}")
        return 1
    else:
        print(f"without {SHARED}: only the embedded model's goldens")
    run = Run(options.full)
    for golden in goldens:
        if options.only and options.only not in golden.name:
            continue
        start = time.time()
        run.exact(golden)
        if golden.name in ("own-glm", "SmolLM2", "stories260k safetensors"):
            run.equal_paths(golden, "fast")
        if golden.name == "own-glm":
            for weights in ("int8", "int4"):
                run.equal_paths(golden, "fast", weights)
        print(f"{golden.name}: {len(golden.cases)} cases, {time.time() - start:.1f} s", flush=True)
    print(f"{run.compared - len(run.failures)} comparisons passed, {len(run.failures)} failed")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
