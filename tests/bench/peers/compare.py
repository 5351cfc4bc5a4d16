# SPDX-License-Identifier: Apache-2.0
"""Lets Baton and its peers take turns on the same files and prints what the ratios are.

tests/bench/peers.sh calls it. An engine is a program that measures some works of a model and ends;
per model the engines take turns for some rounds, and the best of each work counts: the machine may
be shared, and its memory may change between two speeds within minutes.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 64
LONG_PROMPT = 2048  # a prompt as long as this, or longer, is computed once a round


@dataclasses.dataclass(frozen=True)
class Model:
    file: str
    prompts: tuple[int, ...]
    batches: tuple[int, ...]
    steps: int = STEPS
    openvino: bool = True  # reads this architecture
    baton_flags: tuple[str, ...] = ()


MODELS = {
    "smollm2": Model("SmolLM2-135M-Instruct.Q4_1.gguf", (512, 2048, 6515), (1, 4, 8, 16)),
    # llama.cpp's fastest format for this model.
    "smollm2-q4_0": Model("SmolLM2-135M-Instruct.Q4_0.gguf", (512,), (1,)),
    # Only Baton goes without AVX-512.
    "smollm2-avx2": Model("SmolLM2-135M-Instruct.Q4_1.gguf", (512,), (1,),
                          baton_flags=("--isa", "avx2")),
    "qwen": Model("Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf", (256,), (1, 4, 8), steps=32),
    "glm6b": Model("chatglm2-6b-random.Q4_0.gguf", (128,), (1, 4, 8), steps=16, openvino=False),
}


@dataclasses.dataclass(frozen=True)
class Work:
    model: str
    kind: str  # "prompt" or "decode"
    size: int  # tokens of the prompt, or sequences that decode together

    @property
    def key(self) -> str:
        return f"{self.kind}{self.size}"

    @property
    def name(self) -> str:
        return f"{self.model}/{self.key}"


def all_works() -> list[Work]:
    return [Work(name, kind, size) for name, model in MODELS.items()
            for kind, sizes in (("prompt", model.prompts), ("decode", model.batches))
            for size in sizes]


def chosen_works(names: list[str]) -> list[Work]:
    """Works that `names` name ("qwen", "qwen/decode", "qwen/decode4"); all without names.

    ValueError for a name of nothing.
    """
    works = all_works()

    def fits(work: Work, name: str) -> bool:
        return name in (work.name, work.model, f"{work.model}/{work.kind}")

    for name in names:
        if not any(fits(work, name) for work in works):
            raise ValueError(f"{name} names nothing; there are: "
                             + " ".join(work.name for work in works))
    return [work for work in works if not names or any(fits(work, name) for name in names)]


def run(command: list[str]) -> dict[str, float]:
    """The JSON object that a program prints last."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: "
                           f"{done.stderr.strip()[-400:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def repetitions(work: Work) -> int:
    return 1 if work.kind == "prompt" and work.size >= LONG_PROMPT else 3


def measure_peer(command: list[str], path: str, works: list[Work], threads: int) -> dict:
    """One process per number of repetitions: a long prompt is not computed twice."""
    speeds = {}
    for reps in sorted({repetitions(work) for work in works}):
        flags = ["measure", path, "--threads", str(threads), "--reps", str(reps),
                 "--steps", str(MODELS[works[0].model].steps)]
        for kind in ("prompt", "decode"):
            sizes = [str(work.size) for work in works
                     if work.kind == kind and repetitions(work) == reps]
            flags += [f"--{kind}", ",".join(sizes)] if sizes else []
        speeds.update(run(command + flags))
    return speeds


def measure_baton(baton: str, path: str, works: list[Work], threads: int) -> dict:
    """A process per prompt; the decode works of a model together."""
    speeds = {}

    def bench(*flags: str) -> None:
        speeds.update(run([baton, "bench", "model", path, "--threads", str(threads), "--json",
                           *MODELS[works[0].model].baton_flags, *flags]))

    batches = [str(work.size) for work in works if work.kind == "decode"]
    if batches:
        bench("--pp", "16", "--tg", str(MODELS[works[0].model].steps), "--batch",
              ",".join(batches), "--reps", "3")
    for work in works:
        if work.kind == "prompt":
            bench("--pp", str(work.size), "--tg", "1", "--batch", "1", "--reps",
                  str(repetitions(work)))
    return speeds


def measure(engine: str, program: str, path: str, works: list[Work], threads: int) -> dict:
    if engine == "baton":
        return measure_baton(program, path, works, threads)
    return measure_peer([program, str(HERE / f"{engine}_speed.py")], path, works, threads)


def compare_model(name: str, works: list[Work], engines: dict[str, str], args) -> dict:
    """Best tokens per second: {engine: {work key: speed}}; an engine that fails is said."""
    path = str(args.model_folder / MODELS[name].file)
    running = {engine: program for engine, program in engines.items()
               if engine != "openvino" or MODELS[name].openvino}
    best = {engine: {} for engine in engines}
    for turn in range(args.rounds):
        for engine, program in list(running.items()):
            print(f"==> {name}, round {turn + 1} of {args.rounds}: {engine}", file=sys.stderr,
                  flush=True)
            try:
                speeds = measure(engine, program, path, works, args.threads)
            except RuntimeError as error:
                print(f"    left out: {error}", file=sys.stderr)
                del running[engine]
                continue
            for key, speed in speeds.items():
                best[engine][key] = max(best[engine].get(key, 0.0), speed)
    return best


def rows(works: list[Work], best: dict) -> list[dict]:
    """A row per work: tokens per second of each engine, Baton's ratio to each peer."""
    result = []
    for work in works:
        row = {"work": work.name}
        for engine, speeds in best.items():
            if work.key in speeds:
                row[engine] = speeds[work.key]
        for engine in best:
            if engine != "baton" and engine in row and "baton" in row:
                row[f"baton/{engine}"] = round(row["baton"] / row[engine], 2)
        result.append(row)
    return result


def show(table: list[dict], engines: list[str]) -> str:
    """Lines for people; "-" where an engine was not measured."""
    columns = engines + [f"baton/{engine}" for engine in engines if engine != "baton"]

    def cell(row: dict, column: str) -> str:
        if column not in row:
            return "-"
        return f"{row[column]:.2f}x" if "/" in column else f"{row[column]:,.1f}"

    lines = [["tokens/s", *columns]] + [
        [row["work"], *(cell(row, column) for column in columns)] for row in table]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join([line[0].ljust(widths[0])] +
                               [text.rjust(width) for text, width in zip(line[1:], widths[1:])])
                     for line in lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--models", action="store_true", help="print the files needed and end")
    parser.add_argument("--model-folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    for engine in ("baton", "llamacpp", "openvino"):
        parser.add_argument(f"--{engine}", help="its program; without: not measured")
    args = parser.parse_args()
    if args.rounds < 1 or args.threads < 1:
        parser.error("--rounds and --threads must be at least 1")
    return args


def main() -> int:
    args = parse()
    try:
        works = chosen_works(args.names)
    except ValueError as error:
        sys.exit(f"error: {error}")
    if args.list or args.models:
        print("\n".join(dict.fromkeys(MODELS[work.model].file if args.models else work.name
                                      for work in works)))
        return 0
    engines = {engine: program for engine in ("baton", "llamacpp", "openvino")
               if (program := getattr(args, engine)) is not None}
    table = []
    for name in dict.fromkeys(work.model for work in works):
        if not (args.model_folder / MODELS[name].file).is_file():
            print(f"==> {name} left out: no {MODELS[name].file}", file=sys.stderr)
            continue
        of_model = [work for work in works if work.model == name]
        table += rows(of_model, compare_model(name, of_model, engines, args))
    if args.json:
        for row in table:
            print(json.dumps(row))
    else:
        print(show(table, list(engines)))
        print(f"best of {args.rounds} rounds, {args.threads} threads, load "
              f"{os.getloadavg()[0]:.1f}")
    return 0 if table else 1


if __name__ == "__main__":
    raise SystemExit(main())
