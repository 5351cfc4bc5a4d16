#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reference answers through a running cluster: every model, path and transport.

    tests/integration/goldens.py [--full] [--only NAME]

Starts clusters with deploy/local/cluster.sh, sends the goldens with `baton generate --input`,
and compares token ids: with the goldens (--precision exact) and between the paths (both
precisions, greedy, with seeds at temperature 0.8, and with every step of the sampling chain).
Log-probabilities are compared between the paths, with `baton score` and with reference logits. Without --full the 6,515-token prompt
and the second concurrency are left out, to fit into every test run.
"""
import argparse
import dataclasses
import json
import math
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
    logits: list = None  # of the prompt, [token][id], where the reference has them
    beams: list = None  # of the first case: the best of a search, without end token and length penalty


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
                                 str(folder / name / file), [case],
                                 golden.get("logits_prompt") if file == "model.safetensors" else None,
                                 golden["beam3_6steps_own_numpy"] if file == "model.safetensors" else None))
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


def far(got: list, expected: list, tolerance: float) -> list:
    if len(got) != len(expected):
        return [f"{len(got)} numbers instead of {len(expected)}"]
    return [f"at {i}: {a} is not {b}" for i, (a, b) in enumerate(zip(got, expected))
            if not abs(a - b) <= tolerance * (1 + abs(b))]


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


def content_of(answers: list) -> list:
    keys = ("error", "token_ids", "text", "finish_reason", "matched_stop", "matched_token_ids", "logprobs",
            "prompt_logprobs", "choices")
    return [{key: answer[key] for key in keys if key in answer} for answer in answers]


def chained(golden: Golden) -> list:
    """Requests that go through every step of the chain and every kind of stop."""
    common = ids_seen(golden)
    lines = requests_of(golden, temperature=0.9, top_k=60, top_p=0.95, min_p=0.001, typical_p=0.95,
                        repetition_penalty=1.1, presence_penalty=0.3, frequency_penalty=0.2,
                        logit_bias={str(common[0]): -1.5, str(common[1]): 2.0},
                        bad_token_sequences=[[common[2]], [common[1], common[3]]], logprobs=3)
    for i, line in enumerate(lines):
        line["seed"] = 2000 + i
        line["min_tokens"] = min(3, line["max_tokens"])
        line["stop_sequences"] = [[common[0], common[1]]]
        if i % 4 == 0:
            line["prompt_logprobs"] = 2
    return lines


def strategies(golden: Golden) -> list:
    """Several answers, the best of several, beams and phases."""
    lines = []
    for i, line in enumerate(requests_of(golden, temperature=0.8, seed=7, logprobs=1)[:3]):
        lines += [{**line, "n": 4}, {**line, "n": 2, "best_of": 5},
                  {**line, "temperature": 0, "beams": 4, "n": 4, "ignore_eos": False, "repetition_penalty": 1.1},
                  {**line, "max_tokens": 12, "phases": [{"beams": 3, "max_tokens": 4}, {"top_p": 0.9}]}]
    return lines


def ids_seen(golden: Golden) -> list:
    """Some ids of the expected answers, the same in each run."""
    return sorted({i for case in golden.cases for i in case.expected})[:4] * 4


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
                        if golden.beams:
                            self.beams(f"{what} beams", golden, cluster, path)
                        used = {a["path"]["transport"] for a in answers if "path" in a}
                        if path == "split" and not used <= {transport, ""}:
                            self.check(what, [f"went over {used}"])

    def beams(self, what: str, golden: Golden, cluster: Cluster, path: str) -> None:
        """Sums of six steps of width 3; log-probabilities of the tokens make up the score."""
        line = {"prompt_ids": golden.cases[0].prompt_ids, "beams": 3, "n": 3, "length_penalty": 0, "max_tokens": 6,
                "ignore_eos": True, "temperature": 0, "logprobs": 0}
        choices = cluster.generate([line], path, 1)[0]["choices"]
        self.check(what, [] if [c["token_ids"] for c in choices] == [b["ids"] for b in golden.beams] else
                   [f"{choices} is not {golden.beams}"])
        self.check(what, far([c["score"] for c in choices], [b["sum_logprob"] for b in golden.beams], 1e-4))
        self.check(what, far([sum(token["logprob"] for token in c["logprobs"]) for c in choices],
                             [c["score"] for c in choices], 1e-5))

    def logprobs(self, golden: Golden) -> None:
        """Of prompts, exact precision: equal to `baton score`, and to reference logits where there are some."""
        lines = requests_of(golden, temperature=0, prompt_logprobs=0)[:4]
        with Cluster(golden.model, "shm", "exact") as cluster:
            answers = cluster.generate(lines, "split", 2)
        for line, answer in zip(lines, answers):
            got = [entry["logprob"] for entry in answer["prompt_logprobs"][1:]]
            score = subprocess.run([BIN / "baton", "score", "--model", golden.model, "--precision", "exact",
                                    "--json", "--ids", ",".join(map(str, line["prompt_ids"]))],
                                   check=True, capture_output=True, text=True)
            expected = json.loads(score.stdout)["token_logprobs"][1:]
            self.check(f"{golden.name} prompt log-probabilities and baton score", far(got, expected, 1e-5))
            if golden.logits:
                reference = [row[i] - math.log(sum(map(math.exp, row)))
                             for row, i in zip(golden.logits, line["prompt_ids"][1:])]
                self.check(f"{golden.name} prompt log-probabilities and reference", far(got, reference, 1e-4))

    def demo_question(self) -> None:
        """What the quickstart shows: the best token leads the next by 0.08 in exact arithmetic."""
        request = {"messages": [{"role": "user", "content": "What is the capital of France?"}],
                   "temperature": 0, "max_tokens": 16}
        with Cluster(str(DEMO), "shm", "fast") as cluster:
            answer = cluster.generate([request], "split", 1)[0]
        self.check("the quickstart's question", [] if "Paris" in answer["text"] else [answer["text"]])

    def equal_paths(self, golden: Golden, precision: str, weights: str = "stored") -> None:
        sampled = requests_of(golden, temperature=0.8, top_p=0.95)
        for i, request in enumerate(sampled):
            request["seed"] = 1000 + i
        lines = requests_of(golden, temperature=0) + sampled + chained(golden) + strategies(golden)
        answers = {}
        for transport in ("shm", "tcp"):
            with Cluster(golden.model, transport, precision, weights) as cluster:
                if transport == "shm":
                    answers["local x1"] = cluster.generate(lines, "local", 1)
                    answers["local x8"] = cluster.generate(lines, "local", 8)
                answers[f"split {transport} x8"] = cluster.generate(lines, "split", 8)
        reference = content_of(answers["local x1"])
        for name, got in answers.items():
            wrong = [f"line {i}: {b} is not {a}" for i, (a, b) in enumerate(zip(reference, content_of(got))) if a != b]
            self.check(f"{golden.name} {precision} {name} equals local x1", wrong)


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
        if golden.logits or golden.name in ("own-glm", "SmolLM2"):
            run.logprobs(golden)
        if golden.name in ("own-glm", "SmolLM2", "stories260k safetensors"):
            run.equal_paths(golden, "fast")
        if golden.name == "own-glm":
            for weights in ("int8", "int4"):
                run.equal_paths(golden, "fast", weights)
        print(f"{golden.name}: {len(golden.cases)} cases, {time.time() - start:.1f} s", flush=True)
    if DEMO.exists() and not options.only:
        run.demo_question()
    print(f"{run.compared - len(run.failures)} comparisons passed, {len(run.failures)} failed")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
