#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streams an answer of a Baton router; made from proto/ alone.

    python3 -m venv build/venv && build/venv/bin/pip install grpcio-tools && mkdir -p build/python
    build/venv/bin/python -m grpc_tools.protoc -I proto --python_out=build/python \\
        --grpc_python_out=build/python baton/v1/types.proto baton/v1/inference.proto
    PYTHONPATH=build/python build/venv/bin/python client/python/generate.py \\
        127.0.0.1:8500 "What is the capital of France?"

With --prompt-ids the second argument is a list of token ids: 1,2,3.
"""
import argparse
import sys

import grpc

from baton.v1 import inference_pb2, inference_pb2_grpc, types_pb2


def open_stream(stub, args):
    settings = dict(sampling=types_pb2.SamplingParams(temperature=0),
                    stop=types_pb2.StopParams(max_tokens=args.max_tokens))
    if args.prompt_ids:
        ids = types_pb2.TokenIds(ids=[int(i) for i in args.question.split(",")])
        request = inference_pb2.GenerateRequest(prompt_ids=ids, **settings)
        return stub.Generate(request, timeout=args.timeout)
    message = inference_pb2.ChatMessage(role="user", content=args.question)
    request = inference_pb2.ChatRequest(messages=[message], **settings)
    return stub.Chat(request, timeout=args.timeout)


def print_events(stream):
    for response in stream:
        event = response.WhichOneof("event")
        if event == "tokens":
            # A model without a tokenizer sends ids alone.
            text = response.tokens.text or "".join(f"{i} " for i in response.tokens.token_ids)
            print(text, end="", flush=True)
        elif event == "finished":
            done = response.finished
            reason = types_pb2.FinishReason.Name(done.reason)
            print(f"\n[{done.usage.completion_tokens} tokens, {reason}, "
                  f"first token {done.timing.first_token:.0f} ms, total {done.timing.total:.0f} ms]",
                  file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("router", help="HOST:PORT")
    parser.add_argument("question")
    parser.add_argument("--prompt-ids", action="store_true", help="the question is token ids")
    parser.add_argument("--max-tokens", type=int, default=100)
    parser.add_argument("--timeout", type=float, default=60, help="seconds")
    args = parser.parse_args()
    with grpc.insecure_channel(args.router) as channel:
        try:
            print_events(open_stream(inference_pb2_grpc.InferenceStub(channel), args))
        except grpc.RpcError as error:
            print(f"\n{error.code().name}: {error.details()}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
