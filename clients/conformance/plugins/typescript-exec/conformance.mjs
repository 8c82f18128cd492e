#!/usr/bin/env node
// The plugin of the conformance suite: does what `params.do` says.

import { run, runBatch } from "../../../typescript/dist/plugin.js";

async function act(task, verb, ...args) {
  if (verb === "tell") task.result({ id: task.id, queue: task.env.DISBATCH_QUEUE, storage: task.storage, attempt: task.attempt });
  else if (verb === "ask" && task.answer) task.result({ value: task.answer.value, attempt: task.answer.attempt });
  else if (verb === "fail") throw new Error(...args);
  else if (verb === "until_cancelled") {
    if (!task.cancelled) await new Promise((resolve) => task.signal.addEventListener("abort", resolve));
    task.log("cancelled as asked");
  } else task[verb](...args);
}

async function work(task) {
  for (const step of task.params.do) await act(task, ...step);
}

async function answer(task) {
  try {
    await work(task);
    task.done();
  } catch (error) {
    task.log(error.message);
    task.done(1);
  }
}

if (process.argv[2] === "batch") await runBatch((tasks) => Promise.all(tasks.map(answer)));
else await run(work);
