#!/usr/bin/env node
// The plugin of the conformance suite: does what `params.do` says.

import { run, runBatch } from "../../../typescript/dist/plugin.js";

/** Of all tasks, in a database of the plugin's own. */
async function withEffects(url, work) {
  const { MongoClient } = await import("../../../typescript/node_modules/mongodb/lib/index.js");
  const client = await MongoClient.connect(url);
  try {
    return await work(client.db("shop").collection("effects"), client);
  } finally {
    await client.close();
  }
}

/** The effect of the task and its end, in one transaction, and what follows. */
const move = (task, url, status, ...then) =>
  withEffects(url, async (effects, client) => {
    const once = () =>
      client.withSession((session) =>
        session.withTransaction(async () => {
          await effects.insertOne({ task: task.id, attempt: task.attempt }, { session });
          await task.commit(session, status);
          if (then.includes("abort") || (then.includes("abort at first") && task.attempt === 1)) throw new Error("aborted");
        }),
      );
    await once();
    if (then.includes("again")) await once();
    if (then.includes("fail")) throw new Error("too late");
  });

async function act(task, verb, ...args) {
  if (verb === "tell") task.result({ id: task.id, queue: task.env.DISBATCH_QUEUE, storage: task.storage, attempt: task.attempt });
  else if (verb === "ask" && task.answer) task.result({ value: task.answer.value, attempt: task.answer.attempt });
  else if (verb === "fail") throw new Error(...args);
  else if (verb === "move") await move(task, ...args);
  else if (verb === "effects") {
    const effects = await withEffects(args[0], (effects) => effects.find({ task: args[1] }).toArray());
    task.result({ attempts: effects.map((effect) => effect.attempt) });
  } else if (verb === "until_cancelled") {
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
