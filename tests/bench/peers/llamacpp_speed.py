# SPDX-License-Identifier: Apache-2.0
"""Speed of llama.cpp through llama-cpp-python's bindings of its C API; requantization.

Runs in the virtual environment of tests/bench/peers.sh. Contexts are made per kind of work: one
with room for every sequence of a long prompt would take gigabytes. A step is waited for
(llama_synchronize), since llama_decode may return before it has ended.
"""
import argparse
import ctypes
import time

import llama_cpp

import speed_protocol


class Context:
    def __init__(self, model, tokens: int, sequences: int, threads: int):
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = tokens * sequences
        params.n_batch = 2048
        params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = threads
        params.n_seq_max = sequences
        self.handle = llama_cpp.llama_init_from_model(model, params)
        assert self.handle, "llama.cpp makes no context"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        llama_cpp.llama_free(self.handle)

    def clear(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.handle), True)

    def step(self, rows: list[tuple[int, int, int]], every_row: bool) -> None:
        """Computes (token, position, sequence) rows; logits of all or of the last."""
        batch = llama_cpp.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for i, (token, position, sequence) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = every_row or i == len(rows) - 1
        failed = llama_cpp.llama_decode(self.handle, batch)
        llama_cpp.llama_synchronize(self.handle)
        llama_cpp.llama_batch_free(batch)
        assert failed == 0, f"llama_decode gave {failed}"


def prompt_seconds(context: Context, ids: list[int]) -> float:
    context.clear()
    begin = time.perf_counter()
    for first in range(0, len(ids), 2048):
        piece = ids[first:first + 2048]
        context.step([(token, first + i, 0) for i, token in enumerate(piece)], False)
    return time.perf_counter() - begin


def decode_seconds(context: Context, pool: list[int], batch: int, steps: int) -> float:
    context.clear()
    start = speed_protocol.DECODE_CONTEXT
    for sequence in range(batch):
        context.step([(pool[sequence * start + i], i, sequence) for i in range(start)], False)
    begin = time.perf_counter()
    for k in range(steps):
        context.step([(pool[(k + 1) * 31 + s], start + k, s) for s in range(batch)], True)
    return time.perf_counter() - begin


def measure(args: argparse.Namespace) -> dict[str, float]:
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(args.model.encode(),
                                                 llama_cpp.llama_model_default_params())
    assert model, "llama.cpp does not load this model"
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    pool = speed_protocol.token_pool(vocabulary)
    speeds = {}
    for tokens in args.prompt:
        with Context(model, tokens + 64, 1, args.threads) as context:
            prompt_seconds(context, pool[-64:])  # pages and threads
            best = min(prompt_seconds(context, pool[:tokens]) for _ in range(args.reps))
        speeds[f"prompt{tokens}"] = tokens / best
    for batch in args.decode:
        with Context(model, speed_protocol.DECODE_CONTEXT + args.steps + 64, batch,
                     args.threads) as context:
            decode_seconds(context, pool, batch, 2)
            best = min(decode_seconds(context, pool, batch, args.steps) for _ in range(args.reps))
        speeds[f"decode{batch}"] = batch * args.steps / best
    return speeds


def requantize(args: argparse.Namespace) -> None:
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0
    params.allow_requantize = True
    failed = llama_cpp.llama_model_quantize(args.source.encode(), args.target.encode(),
                                            ctypes.byref(params))
    assert failed == 0, f"llama_model_quantize gave {failed}"


if __name__ == "__main__":
    speed_protocol.main(__doc__, measure, {"requantize": requantize})
