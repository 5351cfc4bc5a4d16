# SPDX-License-Identifier: Apache-2.0
"""What the speed programs of the peers have in common: flags in, one JSON object out."""
import argparse
import json
import random
import sys

DECODE_CONTEXT = 16  # tokens of a sequence before its first step, as in baton bench model


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def token_pool(vocabulary: int) -> list[int]:
    """Ids that the work is made of; the first and last of a vocabulary tend to be special."""
    draw = random.Random(1)
    return [draw.randrange(100, vocabulary - 100) for _ in range(65536)]


def main(description: str, measure, others: dict) -> None:
    parser = argparse.ArgumentParser(description=description)
    commands = parser.add_subparsers(dest="command", required=True)
    speed = commands.add_parser("measure")
    speed.add_argument("model")
    speed.add_argument("--threads", type=int, required=True)
    speed.add_argument("--prompt", type=numbers, default=[], help="lengths: 512,2048")
    speed.add_argument("--decode", type=numbers, default=[], help="batch sizes: 1,4")
    speed.add_argument("--steps", type=int, default=64)
    speed.add_argument("--reps", type=int, default=2)
    for name in others:
        other = commands.add_parser(name)
        other.add_argument("source")
        other.add_argument("target")
    args = parser.parse_args()
    if args.command != "measure":
        return others[args.command](args)
    speeds = measure(args)
    # The last line: libraries print what they like before it.
    print(json.dumps({name: round(speed, 1) for name, speed in speeds.items()}))
    sys.stdout.flush()
    return None
