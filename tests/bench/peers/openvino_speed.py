# SPDX-License-Identifier: Apache-2.0
"""Speed of OpenVINO GenAI, which reads GGUF files by itself.

Runs in the virtual environment of tests/bench/peers.sh. Every prompt is a new one: the pipeline
keeps a prefix cache. Decoding is what a generation takes beyond its first token.
"""
import argparse

import numpy
import openvino
import openvino_genai

import speed_protocol


class Generator:
    def __init__(self, args: argparse.Namespace):
        self.pipeline = openvino_genai.LLMPipeline(args.model, "CPU",
                                                   INFERENCE_NUM_THREADS=args.threads)
        vocabulary = len(self.pipeline.get_tokenizer().get_vocab())
        self.random = numpy.random.default_rng(1)
        self.ids = (100, vocabulary - 100)

    def run(self, batch: int, prompt: int, new_tokens: int):
        """Of one generation: seconds to the first tokens, and seconds after them."""
        ids = self.random.integers(*self.ids, (batch, prompt), dtype=numpy.int64)
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids),
                                                openvino.Tensor(numpy.ones_like(ids)))
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = new_tokens
        config.ignore_eos = True
        config.do_sample = False
        metrics = self.pipeline.generate(inputs, config).perf_metrics
        first = metrics.get_ttft().mean / 1000
        return first, metrics.get_generate_duration().mean / 1000 - first


def measure(args: argparse.Namespace) -> dict[str, float]:
    generator = Generator(args)
    speeds = {}
    for tokens in args.prompt:
        generator.run(1, tokens, 1)  # the first of a length compiles
        best = min(generator.run(1, tokens, 1)[0] for _ in range(args.reps))
        speeds[f"prompt{tokens}"] = tokens / best
    for batch in args.decode:
        generator.run(batch, speed_protocol.DECODE_CONTEXT, 4)
        best = min(generator.run(batch, speed_protocol.DECODE_CONTEXT, args.steps + 1)[1]
                   for _ in range(args.reps))
        speeds[f"decode{batch}"] = batch * args.steps / best
    return speeds


if __name__ == "__main__":
    speed_protocol.main(__doc__, measure, {})
