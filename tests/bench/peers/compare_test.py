# SPDX-License-Identifier: Apache-2.0
"""What tests/bench/peers.sh measures, keeps and prints, with engines that are scripts."""
import argparse
import pathlib
import tempfile
import unittest

import compare


def script(folder: pathlib.Path, name: str, *lines: str) -> str:
    path = folder / name
    path.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    path.chmod(0o755)
    return str(path)


class Names(unittest.TestCase):
    def test_a_name_is_a_work_a_kind_of_a_model_or_a_model(self):
        names = lambda *wanted: [work.name for work in compare.chosen_works(list(wanted))]
        self.assertEqual(names("smollm2/decode1"), ["smollm2/decode1"])
        self.assertEqual(names("qwen/decode"), ["qwen/decode1", "qwen/decode4", "qwen/decode8"])
        self.assertEqual(names("smollm2-q4_0"), ["smollm2-q4_0/prompt512", "smollm2-q4_0/decode1"])
        self.assertEqual(names(), [work.name for work in compare.all_works()])

    def test_a_name_of_nothing_is_refused_with_those_there_are(self):
        with self.assertRaisesRegex(ValueError, "smollm3 names nothing.*smollm2/prompt512"):
            compare.chosen_works(["qwen", "smollm3"])


class Turns(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.args = argparse.Namespace(model_folder=self.folder, rounds=2, threads=2)

    def compare(self, engines: dict[str, str], *names: str):
        works = compare.chosen_works(list(names))
        return works, compare.compare_model(works[0].model, works, engines, self.args)

    def test_engines_take_turns_and_the_best_round_counts(self):
        log = self.folder / "log"
        # Twice as fast in its second round.
        baton = script(self.folder, "baton", f"echo baton >> {log}",
                       f"echo '{{\"decode1\": '$(grep -c baton {log})00'}}'")
        peer = script(self.folder, "peer", f"echo peer >> {log}", "echo warning: slow",
                      "echo '{\"decode1\": 50}'")
        works, best = self.compare({"baton": baton, "llamacpp": peer}, "smollm2/decode1")
        self.assertEqual(log.read_text().split(), ["baton", "peer", "baton", "peer"])
        table = compare.rows(works, best)
        self.assertEqual(table, [{"work": "smollm2/decode1", "baton": 200, "llamacpp": 50,
                                  "baton/llamacpp": 4.0}])
        self.assertEqual(compare.show(table, ["baton", "llamacpp"]).splitlines(),
                         ["tokens/s         baton  llamacpp  baton/llamacpp",
                          "smollm2/decode1  200.0      50.0           4.00x"])

    def test_an_engine_that_fails_leaves_the_others_alone(self):
        baton = script(self.folder, "baton", "echo '{\"decode1\": 7}'")
        peer = script(self.folder, "peer", "echo no such model >&2", "exit 1")
        works, best = self.compare({"baton": baton, "llamacpp": peer}, "smollm2/decode1")
        self.assertEqual(compare.rows(works, best), [{"work": "smollm2/decode1", "baton": 7}])
        self.assertIn("-", compare.show(compare.rows(works, best), ["baton", "llamacpp"]))

    def test_a_long_prompt_is_computed_once_a_round(self):
        log = self.folder / "log"
        peer = script(self.folder, "peer", f"echo \"$@\" >> {log}",
                      "echo '{\"prompt512\": 1, \"prompt6515\": 1}'")
        self.args.rounds = 1
        self.compare({"llamacpp": peer}, "smollm2/prompt512", "smollm2/prompt6515")
        calls = log.read_text().splitlines()
        self.assertEqual(len(calls), 2)
        self.assertIn("--reps 1 --steps 64 --prompt 6515", calls[0])
        self.assertIn("--reps 3 --steps 64 --prompt 512", calls[1])


if __name__ == "__main__":
    unittest.main()
