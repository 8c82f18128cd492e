#!/usr/bin/env python3
"""A Disbatch plugin that scores texts, many of them at a time.

The manifest says that the plugin takes batches: each line of standard input brings up to 64 tasks, which are scored together and answered one
by one. All answers of a line leave in one write. What is printed would belong to no task, so output is part of the answer.
"""

import json
import os
import sys

WEIGHTS = {"good": 1, "great": 2, "bad": -1, "awful": -2}


def scores(texts):
    """Stands for what is done better with many at once: a model, a table, a request."""
    return [sum(WEIGHTS.get(word.strip(".,!?"), 0) for word in text.lower().split()) for text in texts]


def answer(one, score=None):
    """The line that says how a task ended."""
    line = {"id": one["env"]["DISBATCH_TASK_ID"]}
    if score is None:
        line.update(stderr="params.text must be text\n", done={"exit": 1})
    else:
        line.update(stdout=f"score {score}\n", result={"score": score}, done={"exit": 0})
    return json.dumps(line) + "\n"


def main():
    control = int(os.environ.get("DISBATCH_CONTROL_FD", "1"))
    for line in sys.stdin:
        # A line without tasks asks for the end of one; these are over before that is read.
        tasks = json.loads(line).get("tasks", [])
        texts = [(one["task"].get("params") or {}).get("text") for one in tasks]
        scored = iter(scores([text for text in texts if isinstance(text, str)]))
        pairs = [(one, next(scored) if isinstance(text, str) else None) for one, text in zip(tasks, texts)]
        said = "".join(answer(one, score) for one, score in pairs).encode()
        while said:
            said = said[os.write(control, said) :]


if __name__ == "__main__":
    main()
