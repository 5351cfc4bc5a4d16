#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Equality storm: whatever a cluster does to a request, its tokens are those of the request alone.

    tests/integration/equality_storm.py [--seed 1] [--count 300] [--repeat 1] [--model NAME] [--only CASE]

Random requests (greedy and sampled, with penalties, several answers, best_of, beams and phases, some with
log-probabilities, a constraint or a sliding window, prompts that share prefixes or go on where another one's answer
ended) are first answered one at a time by an idle decode worker without a prefix cache or guessed tokens. Then they
go, 16 at once and in the order and on the paths that the seed draws, through rounds of workers
whose chunks, pools, guesses, swap areas, files of evicted blocks, transports and policies are drawn as well, with pools so small
that sequences are put aside and prefixes evicted: one round for the shorter ones, in pools that
hold little more than the longest of them, and one for the longer half. Every token id of every answer,
every log-probability and every score must be equal. Afterwards no block may be held, and each worker's own check of its pool, made when it
ends, must be clean.

Fails unless preemptions, swaps, evictions, prefix hits, right guesses and hand-offs all happened; in 300 requests
or more recomputed tokens, too. --only repeats a case of a run with the same draws.
"""
import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BATON_BIN", ROOT / "build/release/bin"))
CACHE = pathlib.Path(os.environ.get("BATON_CACHE_DIR", pathlib.Path.home() / ".cache/baton"))
DEMO = CACHE / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
CONCURRENCY = 16
BLOCK = 32
START_S, IDLE_S, END_S = 60, 10, 60
POLICIES = ("fcfs", "srw", "deadline", "priority", "fair")


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    file: str
    longest_prompt: int
    longest_answer: int
    ids: range  # of random text


OWN_GLM = Model("own-glm", "embedded", 350, 160, range(3, 640))
SMOLLM2 = Model("SmolLM2", str(DEMO), 3000, 100, range(1000, 9000))
# float32 arithmetic takes several times as long.
SMOLLM2_EXACT = dataclasses.replace(SMOLLM2, longest_prompt=600, longest_answer=70)


@dataclasses.dataclass(frozen=True)
class Case:
    """One numerics_id: its answers do not depend on anything else."""
    model: Model
    precision: str
    kv: str
    share: int  # of the requests

    def __str__(self):
        return f"{self.model.name}/{self.precision}/{self.kv}"

    def flags(self):
        return ["--model", self.model.file, "--precision", self.precision, "--kv-dtype", self.kv]


def cases(name):
    chosen = []
    for precision in ("exact", "fast"):
        for kv in ("f32", "bf16", "int8"):
            if name in ("own-glm", "all"):
                chosen.append(Case(OWN_GLM, precision, kv, share=3))
            if name in ("SmolLM2", "all"):
                chosen.append(Case(SMOLLM2, precision, kv, share=2) if precision == "fast" else
                              Case(SMOLLM2_EXACT, precision, kv, share=1))
    return chosen


# --- requests ---------------------------------------------------------------------------------


def log_uniform(chance, least, most):
    return min(most, int(least * (most / least) ** chance.random() + 0.5))


def draw_prompt(chance, model, trunks):
    length = log_uniform(chance, 1, model.longest_prompt)
    shared = int(length * chance.choice((0, 0.5, 0.9, 1)))
    return chance.choice(trunks)[:shared] + chance.choices(model.ids, k=length - shared)


def draw_sampling(chance):
    if chance.random() < 0.5:
        return {"temperature": 0}
    sampling = {"temperature": round(chance.uniform(0.5, 1.3), 2), "seed": chance.randrange(2**32)}
    if chance.random() < 0.5:
        sampling["top_p"] = round(chance.uniform(0.7, 1), 2)
    if chance.random() < 0.5:
        sampling["top_k"] = chance.randint(1, 100)
    if chance.random() < 0.25:
        sampling["repetition_penalty"] = round(chance.uniform(1, 1.3), 2)
    if chance.random() < 0.25:
        sampling["presence_penalty"] = round(chance.uniform(0, 1), 2)
    return sampling


CONSTRAINTS = (
    {"json": "object"}, {"json": "value"}, {"regex": "(?:[a-z]{1,9}[ ,.]){3,300}"}, {"choices": ["yes", "no", "maybe 中"]},
    {"json_schema": {"type": "array", "items": {"type": "string", "maxLength": 9}, "maxItems": 60}},
    {"json_schema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"$ref": "#"}}, "required": ["a"]}})


def draw_constraint(chance):
    return {"constraint": chance.choice(CONSTRAINTS)} if chance.random() < 0.2 else {}


def draw_beam(chance):
    return {"beams": chance.randint(2, 5), "length_penalty": chance.choice((-1, 0, 0.5, 1, 2)),
            "early_stopping": chance.choice(("heuristic", "always", "never"))}


def draw_phases(chance, tokens, with_beams):
    """Some parts of an answer of `tokens`; a beam phase is greedy, whatever the request's temperature."""
    phases, left = [], tokens
    while len(phases) < 3 and left > 3:
        phase = {"max_tokens": chance.randint(1, min(20, left - 2))}
        if with_beams and chance.random() < 0.6:
            phase |= draw_beam(chance)
            if chance.random() < 0.5:
                phase["until_token_ids"] = chance.sample(range(3, 640), 60)
        else:
            phase["temperature"] = round(chance.uniform(0, 1.2), 2)
        phases.append(phase)
        left -= phase["max_tokens"]
    return phases + [{}]


def draw_strategy(chance, tokens, window):
    """How many answers, and what they are made by; two of three requests are plain ones."""
    kind = chance.choice(("plain", "plain", "plain", "plain", "plain", "plain", "n", "best_of", "beams", "phases"))
    if kind == "n":
        return {"n": chance.randint(2, 5)}
    if kind == "best_of":
        return {"n": chance.randint(1, 2), "best_of": chance.randint(3, 5)}
    if kind == "beams":
        beam = draw_beam(chance)
        return {**beam, "n": chance.randint(1, beam["beams"]), "temperature": 0}
    if kind == "phases" and tokens > 3:
        return {"phases": draw_phases(chance, tokens, not window), "seed": chance.randrange(2**32)}
    return {}


def finish(chance, model, prompt):
    # Every other answer is long, so that what was admitted has to grow.
    tokens = log_uniform(chance, 1, model.longest_answer) if chance.random() < 0.5 else model.longest_answer
    window = {}
    if chance.random() < 0.2:
        window = {"window": BLOCK * chance.choice((1, 2, 4)), "window_sinks": BLOCK * chance.choice((0, 1))}
    logprobs = {"logprobs": chance.randint(0, 5)} if chance.random() < 0.2 else {}
    constraint = draw_constraint(chance)
    return {"prompt_ids": prompt, "max_tokens": tokens, "ignore_eos": not constraint and chance.random() < 0.8,
            **window, **logprobs, **constraint, **draw_sampling(chance), **draw_strategy(chance, tokens, window)}


def draw_requests(chance, model, count):
    trunks = [chance.choices(model.ids, k=model.longest_prompt) for _ in range(3)]
    # One of the longest, one of the shortest, and the rest between.
    prompts = [trunks[0], trunks[0][:1]] + [draw_prompt(chance, model, trunks) for _ in range(count - 2)]
    return [finish(chance, model, prompt) for prompt in prompts]


def draw_next_turns(chance, model, requests, answers, count):
    """Prompts that begin with all of an earlier request and its answer."""
    turns = []
    while len(turns) < count:
        i = chance.randrange(len(requests))
        said = requests[i]["prompt_ids"] + answers[i]["token_ids"]
        news = log_uniform(chance, 1, 60)
        if len(said) + news <= model.longest_prompt:
            turns.append(finish(chance, model, said + chance.choices(model.ids, k=news)))
    return turns


def width_of(request):
    """Answers and beams at once."""
    beams = [part.get("beams", 1) for part in [request, *request.get("phases", ())]]
    return max(request.get("n", 1), request.get("best_of", 1), *beams)


def blocks_of(request):
    prompt, width = len(request["prompt_ids"]), width_of(request)
    if width == 1:
        return -(-(prompt + request["max_tokens"] - 1) // BLOCK)
    return prompt // BLOCK + width * -(-(prompt % BLOCK + request["max_tokens"]) // BLOCK)


def essence(answer):
    """What must not depend on anything but the request."""
    keys = ("token_ids", "finish_reason", "logprobs", "choices")
    return {key: answer[key] for key in keys if key in answer}


# --- processes --------------------------------------------------------------------------------


class Cluster:
    """A router and workers; `problems` tells how they ended."""

    def __init__(self, folder, model, router_flags=()):
        self.folder, self.processes, self.problems = pathlib.Path(folder), {}, []
        ports = self.start("router", "baton-router", ["--model", model.file, "--listen", "127.0.0.1:0",
                                                      "--metrics-listen", "", *router_flags])
        self.router = ports["listen"]

    def start(self, name, binary, flags):
        ports, log = self.folder / f"{name}.ports", open(self.folder / f"{name}.log", "wb")
        process = subprocess.Popen([BIN / binary, "--port-file", ports, *flags], stdout=log, stderr=log)
        self.processes[name] = process
        until = time.monotonic() + START_S
        while not ports.exists():
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{name} did not get ready: {self.log(name)[-2000:]}")
            time.sleep(0.01)
        return json.loads(ports.read_text())

    def worker(self, role, number, flags):
        name = f"{role}-{number}"
        flags = [flag.replace("{worker}", str(self.folder / name)) for flag in flags]
        sockets = ["--socket-dir", str(self.folder)] if role == "decode" else []
        self.start(name, f"baton-{role}-worker", ["--router", self.router, "--worker-id", name,
                                                  "--metrics-listen", "", *sockets, *flags])
        self.await_status(f"{name} is not attached", START_S,
                          lambda status: name in {worker["id"] for worker in status["workers"]})

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def status(self):
        out = subprocess.run([BIN / "baton", "status", "--router", self.router, "--json"], check=True,
                             capture_output=True, text=True)
        return json.loads(out.stdout)

    def await_status(self, problem, seconds, condition):
        until = time.monotonic() + seconds
        while not condition(status := self.status()):
            if time.monotonic() > until:
                raise RuntimeError(f"{problem}: {json.dumps(status)}")
            time.sleep(0.02)
        return status

    def ask(self, lines, concurrency):
        file = self.folder / "input.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        out = subprocess.run([BIN / "baton", "generate", "--router", self.router, "--input", file, "--json",
                              "--deadline", "600s", "--concurrency", str(concurrency)],
                             check=False, capture_output=True, text=True)
        answers = [json.loads(line) for line in out.stdout.splitlines()]
        if len(answers) != len(lines):
            raise RuntimeError(f"{len(answers)} answers to {len(lines)} lines: {out.stderr[-2000:]}")
        return answers

    def end(self):
        """Workers first: they finish what they hold, and check their pools."""
        for name, process in reversed(self.processes.items()):
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = f"{process.wait()} after {END_S} s"
            errors = [line for line in self.log(name).splitlines() if '"level":"error"' in line]
            if code != 0 or errors:
                self.problems.append(f"{name} ended with {code}: {errors or self.log(name)[-500:]}")

    def kill(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()


@contextlib.contextmanager
def cluster(model, router_flags=()):
    with tempfile.TemporaryDirectory(prefix="baton-storm-") as folder:
        running = Cluster.__new__(Cluster)
        running.processes = {}
        try:
            running.__init__(folder, model, router_flags)
            yield running
            running.end()
        finally:
            running.kill()


# --- the storm --------------------------------------------------------------------------------


@dataclasses.dataclass
class Counts:
    requests: int = 0
    tokens: int = 0
    preemptions: int = 0
    swapped_bytes: int = 0
    recomputed_tokens: int = 0
    evicted_blocks: int = 0
    hit_tokens: int = 0
    handoff_bytes: int = 0
    handoff_cached_tokens: int = 0
    several_answers: int = 0  # requests with
    beams: int = 0
    phases: int = 0
    accepted_guesses: int = 0

    def add_workers(self, workers):
        for worker in workers:
            self.preemptions += worker["preemptions"]
            self.swapped_bytes += worker["swap"]["bytes_copied"]
            self.recomputed_tokens += worker["recomputed_tokens"]
            self.evicted_blocks += worker["prefix_cache"]["evicted_blocks"]
            self.hit_tokens += worker["prefix_cache"]["hit_tokens"]

    def add_answer(self, request, answer):
        self.requests += 1
        self.several_answers += len(answer.get("choices", ())) > 1
        self.beams += "beams" in request
        self.phases += "phases" in request
        self.tokens += len(answer.get("token_ids", ()))
        self.handoff_bytes += answer.get("path", {}).get("handoff_bytes", 0)
        self.handoff_cached_tokens += answer.get("path", {}).get("handoff_cached_tokens", 0)
        self.accepted_guesses += answer.get("speculation", {}).get("accepted_tokens", 0)

    def zeros(self):
        """What did not happen, of what makes it a storm."""
        needed = dict(vars(self))
        if self.requests < 300:  # a short one may swap all that it puts aside
            del needed["recomputed_tokens"], needed["handoff_cached_tokens"]
        return [name for name, value in needed.items() if value == 0]


@dataclasses.dataclass
class Round:
    """Settings of a round of workers."""
    router: list
    prefill: list  # flags of each worker
    decode: list


def draw_round(chance, case, most_blocks):
    def worker(role):
        # At least the largest request, and little for all others.
        tokens = BLOCK * (most_blocks + chance.randint(0, most_blocks // 8 + 2))
        flags = case.flags() + ["--chunk-tokens", chance.choice(("32", "128", "512")), "--kv-tokens", str(tokens),
                                "--policy", chance.choice(POLICIES)]
        if chance.random() < 0.5:
            flags += ["--kv-file", "{worker}.blocks", "--kv-file-size", chance.choice(("16MiB", "128MiB"))]
        if role == "decode":
            flags += ["--kv-swap", chance.choice(("0", "1MiB", "64MiB", "64MiB")),
                      "--draft-tokens", chance.choice(("0", "4", "8", "16"))]
        return flags

    router = ["--policy", chance.choice(POLICIES), "--transport", chance.choice(("shm", "tcp")),
              "--local-stall", chance.choice(("0s", "50ms", "10s"))]
    return Round(router, [worker("prefill") for _ in range(chance.choice((1, 1, 2)))],
                 [worker("decode") for _ in range(chance.choice((1, 1, 2)))])


def idle(status):
    return status["running_requests"] == status["queued_requests"] == 0 and all(
        worker["waiting_sequences"] == worker["running_sequences"] == worker["kv"]["blocks_requests"] ==
        worker["kv"]["blocks_transfers"] == worker["swap"]["bytes_used"] == 0 for worker in status["workers"])


class Storm:
    def __init__(self, options):
        self.options, self.counts, self.failures = options, Counts(), []

    def fail(self, what, problem):
        self.failures.append(f"{what}: {problem}")
        print(f"FAILED {what}: {problem[:600]}", flush=True)

    def reference(self, case, chance, count):
        """Requests, and the answers of an idle worker to one at a time."""
        with cluster(case.model) as alone:
            alone.worker("decode", 0, case.flags() + ["--prefix-cache", "off", "--kv-tokens", "4096",
                                                    "--draft-tokens", "0"])

            def answers(requests):
                answered = alone.ask([{**request, "path": "local"} for request in requests], 1)
                for answer in answered:
                    if "error" in answer:
                        raise RuntimeError(f"{case} alone: {answer['error']}")
                return [essence(answer) for answer in answered]

            requests = draw_requests(chance, case.model, count - count // 4)
            expected = answers(requests)
            turns = draw_next_turns(chance, case.model, requests, expected, count // 4)
            expected += answers(turns)
        if alone.problems:
            self.fail(f"{case} alone", str(alone.problems))
        return requests + turns, expected

    def round(self, case, name, chance, requests, expected):
        """Sends `requests`, (index, request) in the order in which they may go on from each other."""
        settings = draw_round(chance, case, max(blocks_of(request) for _, request in requests))
        turns = len(requests) // 4
        order = (chance.sample(requests[:-turns], len(requests) - turns) + chance.sample(requests[-turns:], turns))
        lines = [{**request, "path": chance.choice(("split", "local", "auto")), "priority": chance.randint(0, 2),
                  "tenant": chance.choice(("a", "b"))} for _, request in order]
        with cluster(case.model, settings.router) as storm:
            for role, workers in (("prefill", settings.prefill), ("decode", settings.decode)):
                for number, flags in enumerate(workers):
                    storm.worker(role, number, flags)
            answers = storm.ask(lines, CONCURRENCY)
            status = storm.await_status(f"{name}: something is held", IDLE_S, idle)
        self.counts.add_workers(status["workers"])
        wrong = []
        for (i, _), line, answer in zip(order, lines, answers):
            self.counts.add_answer(line, answer)
            if essence(answer) != expected[i]:
                wrong.append(self.describe(i, line, answer, expected[i]))
        for problem in wrong[:3] + storm.problems:
            self.fail(name, f"{problem}\n  {settings}")
        if len(wrong) > 3:
            self.fail(name, f"and {len(wrong) - 3} more")

    @staticmethod
    def describe(i, line, answer, expected):
        if "error" in answer:
            return f"request {i}: {answer['error']}"
        got, expected = answer["token_ids"], expected["token_ids"]
        at = next((k for k, (a, b) in enumerate(zip(got, expected)) if a != b), min(len(got), len(expected)))
        sampling = {key: value for key, value in line.items() if key != "prompt_ids"}
        return (f"request {i}, {len(line['prompt_ids'])} prompt tokens, {sampling}: token {at} is {got[at:at + 1]} and "
                f"not {expected[at:at + 1]}; {answer['usage']} {answer['path']} {answer['scheduling']}")

    def case(self, case, count):
        begin = time.monotonic()
        requests, expected = self.reference(case, random.Random(f"{self.options.seed} {case}"), count)
        middle = time.monotonic()
        by_size = sorted(range(count), key=lambda i: blocks_of(requests[i]))
        rounds = {"shorter": by_size[:count * 3 // 4], "longer": by_size[count // 2:]}
        for repeat in range(self.options.repeat):
            for name, chosen in rounds.items():
                self.round(case, f"{case} {name} {repeat}", random.Random(f"{self.options.seed} {case} {name} {repeat}"),
                           [(i, requests[i]) for i in sorted(chosen)], expected)
        print(f"{case}: {count} requests, alone {middle - begin:.1f} s, in rounds {time.monotonic() - middle:.1f} s",
              flush=True)

    def run(self, chosen):
        shares = sum(case.share for case in chosen)
        for case in chosen:
            if self.options.only in str(case):
                self.case(case, max(8, -(-self.options.count * case.share // shares)))
        print(json.dumps(vars(self.counts)))
        if not self.options.only and (missing := self.counts.zeros()):
            self.fail("the storm", f"nothing of {missing} happened: too calm to prove anything")
        return 1 if self.failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300, help="different requests")
    parser.add_argument("--repeat", type=int, default=1, help="both rounds so often, with other draws")
    parser.add_argument("--model", choices=("own-glm", "SmolLM2", "all"), default="all")
    parser.add_argument("--only", default="", help="cases whose name contains this, such as own-glm/fast/int8")
    options = parser.parse_args()
    if options.model != "own-glm" and not DEMO.exists():
        sys.exit(f"error: {DEMO} is not there; deploy/local/quickstart.sh fetches it")
    begin = time.monotonic()
    code = Storm(options).run(cases(options.model))
    print(f"{'FAILED' if code else 'passed'} in {time.monotonic() - begin:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
