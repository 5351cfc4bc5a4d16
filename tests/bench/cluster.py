# SPDX-License-Identifier: Apache-2.0
"""A local cluster for the measurements of this folder, and how they report."""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def parser(description: str, model: str | None = None) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    result.add_argument("--model", required=model is None, default=model, help="checkpoint that the workers load")
    result.add_argument("--worker-flag", action="append", default=[],
                        help="extra flag for both workers, such as --worker-flag=--share-cores=off")
    return result


class Router(str):
    """A router's address, and the folder of its cluster's files."""
    folder: pathlib.Path

    def processes(self) -> dict[str, int]:
        """The ids of the cluster's processes by name."""
        return {file.stem: int(file.read_text().split()[0]) for file in self.folder.glob("*.pid")}

    def metric(self, worker: str, name: str) -> float:
        """What `worker`, such as prefill-0, counts: the sum over all labels."""
        ports = json.loads((self.folder / f"{worker}.ports").read_text())
        with urllib.request.urlopen(f"http://{ports['metrics']}/metrics") as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{"))


@contextlib.contextmanager
def cluster(args: argparse.Namespace):
    """Runs a router, a prefill and a decode worker; gives the Router."""
    script = str(ROOT / "deploy/local/cluster.sh")
    environment = dict(os.environ, BATON_BIN=str(args.bin.resolve()))
    with tempfile.TemporaryDirectory() as folder:
        up = [script, "up", "--model", args.model, "--port", "0", "--dir", folder, "--quiet"]
        up += [f"--router-flag={flag}" for flag in getattr(args, "router_flag", [])]
        subprocess.run(up + ["--"] + args.worker_flag, check=True, env=environment)
        try:
            router = Router(pathlib.Path(folder, "router.address").read_text().strip())
            router.folder = pathlib.Path(folder)
            yield router
        finally:
            subprocess.run([script, "down", "--dir", folder, "--quiet"], check=True,
                           env=environment)


def generate(args: argparse.Namespace, router: str, flags: list[str]) -> list[str]:
    # Prompts are repeated here: found in a cache they would measure nothing.
    return [str(args.bin / "baton"), "generate", "--router", router, "--no-prefix-cache", *flags]


def answers(args: argparse.Namespace, router: str, requests: list[dict], concurrency: int = 1) -> list[dict]:
    """What `baton generate` says of each request, in their order."""
    command = generate(args, router, ["--input", "-", "--concurrency", str(concurrency)])
    done = subprocess.run(command, input="\n".join(map(json.dumps, requests)), capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"baton generate ended with {done.returncode}: {done.stderr[-500:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def misses(figures: dict, bars: dict[str, tuple[str, float]]) -> list[str]:
    return [f"{name} {relation} {bound}" for name, (relation, bound) in bars.items()
            if (figures[name] < bound if relation == ">=" else figures[name] > bound)]


def report(figures: dict, bars: dict[str, tuple[str, float]]) -> int:
    """Prints the figures and which bars they miss; the exit status."""
    missed = misses(figures, bars)
    print(json.dumps({**figures, "load": round(os.getloadavg()[0], 2), "missed": missed}))
    return 1 if missed else 0


def fail(message: str) -> None:
    sys.exit(f"error: {message}")
