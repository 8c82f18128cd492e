// What the conformance suite cannot see: the plugin by hand, and pieces of the client.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { Client } from "../dist/index.js";
import { startDev } from "../dist/testing.js";
import { EventReader, Position } from "../dist/follow.js";
import { retryAfter } from "../dist/http.js";
import { parse, stringify } from "../dist/json.js";
import { Task } from "../dist/plugin.js";

test("integers keep all their digits", () => {
  const source = '{"a":9007199254740993,"b":-9223372036854775808,"c":"9007199254740993","d":[9007199254740991,1.5,1e300,123456789012345.5],"e\\"12345678901234567":"\\\\"}';
  const value = parse(source);
  assert.equal(value.a, 9007199254740993n);
  assert.equal(value.c, "9007199254740993");
  assert.deepEqual(value.d, [9007199254740991, 1.5, 1e300, 123456789012345.5]);
  assert.equal(stringify(value).replace("1e+300", "1e300"), source);
  assert.throws(() => stringify({ n: Number.NaN }), /n is NaN/);
  assert.throws(() => parse("{nonsense 12345678901234567}"), SyntaxError);
});

test("text may be long", () => {
  const long = { text: '\\n"x'.repeat(8_000_000), digits: 9007199254740993n };
  assert.deepEqual(parse(stringify(long)), long);
});

test("a password is no part of the address", () => {
  assert.throws(() => new Client({ url: "http://alice:horse@localhost" }), (error) => /username and password/.test(error.message) && !/horse/.test(error.message));
});

test("events may be cut anywhere", () => {
  const bytes = new TextEncoder().encode('event: output\r\nid: 1\r\ndata: {"text":"ü\u2028\u2029"}\r\n\r\n: ping\n\nevent: end\ndata: {}\n\n');
  for (let size = 1; size < bytes.length; size++) {
    const reader = new EventReader();
    const events = [];
    for (let at = 0; at < bytes.length; at += size) events.push(...reader.feed(bytes.subarray(at, at + size)));
    assert.deepEqual(events.map(({ event, data }) => [event, data.text]), [["output", "ü\u2028\u2029"], ["end", undefined]]);
  }
});

test("a position skips what was there", () => {
  const position = new Position();
  const fresh = (chunk) => Buffer.from(position.fresh(Buffer.from(chunk))).toString();
  const answer = (status, range) => position.answered({ status, headers: new Headers(range ? { "content-range": range } : {}) });
  answer(200);
  assert.equal(fresh("abc"), "abc");
  answer(206, "bytes 2-9/10");
  assert.equal(fresh("cd"), "d");
  answer(200);
  assert.equal(fresh("ab") + fresh("cde"), "e");
});

test("Retry-After is a number or a date", () => {
  assert.deepEqual(["7", "Wed, 21 Oct 2015 07:28:00 GMT", "soon", null].map(retryAfter), [7, 0, undefined, undefined]);
});

const WORK = `
import { run, runBatch, runWarm } from "${new URL("../dist/plugin.js", import.meta.url)}";
const work = async (task) => {
  console.log("out", task.params.n);
  task.progress(250, "too far"); task.progress(NaN);
  task.result({ n: task.params.n });
  if (task.params.n < 0) throw new Error("negative");
};
`;

/** Exit status, standard output and error, and what was sent on the control descriptor. */
async function plugin(program, stdin, env = {}) {
  const child = spawn(process.execPath, ["--input-type=module", "-e", WORK + program], {
    stdio: ["pipe", "pipe", "pipe", "pipe"],
    env: { ...process.env, DISBATCH_CONTROL_FD: "3", ...env },
  });
  child.stdin.end(stdin);
  const all = Promise.all([text(child.stdout), text(child.stderr), text(child.stdio[3])]);
  const [code] = await once(child, "close");
  const [out, err, said] = await all;
  return { code, out, err, said: said.split("\n").filter(Boolean).map((line) => parse(line)) };
}

const line = (id, n) => ({ task: { _id: { $oid: id }, params: { n } }, env: { DISBATCH_TASK_ID: id } });
const warm = { DISBATCH_WARM: "1" };
const dones = (said) => said.flatMap((one) => (one.done ? [one.done] : []));

test("one task", async () => {
  const fine = await plugin("await run(work);", '{"params":{"n":1}}');
  assert.deepEqual(fine, { code: 0, out: "out 1\n", err: "", said: [{ progress: { percent: 100, message: "too far" } }, { result: { n: 1 } }] });
  const bad = await plugin("await run(work);", '{"params":{"n":-1}}');
  assert.equal(bad.code, 1);
  assert.match(bad.err, /Error: negative/);
  assert.equal((await plugin("await run(work);", "nonsense")).code, 1);
  const stopped = await plugin("await run((task) => { task.save(3); task.interrupted(); });", "{}");
  assert.deepEqual(stopped.said, [{ storage: 3 }, { interrupted: true }]);
  assert.equal((await plugin("await runBatch(([task]) => work(task));", '{"params":{"n":1}}')).out, "out 1\n");
});

test("a container names a path", async () => {
  const folder = await mkdtemp(join(tmpdir(), "disbatch-"));
  try {
    const [control, task] = [join(folder, "control"), '{"params":{"n":1}}'];
    const env = { DISBATCH_CONTROL_FD: "", DISBATCH_CONTROL: control };
    const lost = await plugin("await run(work);", task, env);
    assert.deepEqual([lost.code, lost.out], [0, "out 1\n"]);
    assert.equal(lost.err.match(/progress and results are lost/g).length, 1);
    await writeFile(control, "{}\n");
    const { code, err } = await plugin("await run(work);", task, env);
    assert.deepEqual([code, err], [0, ""]);
    const said = (await readFile(control, "utf8")).split("\n").filter(Boolean).map((line) => parse(line));
    assert.deepEqual(said, [{}, { progress: { percent: 100, message: "too far" } }, { result: { n: 1 } }]);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("task after task", async () => {
  const lines = [line("a", 1), line("b", -2), line("c", 3)].map((one) => `${stringify(one)}\n`).join("");
  const { code, out, err, said } = await plugin("await runWarm(work);", lines, warm);
  assert.deepEqual([code, out], [0, "out 1\nout -2\nout 3\n"]);
  assert.match(err, /negative/);
  assert.deepEqual(dones(said), [{ id: "a", exit: 0 }, { id: "b", exit: 1 }, { id: "c", exit: 0 }]);
});

test("a task has no variables of the one before", async () => {
  const first = { DISBATCH_TASK_ID: "a", TRACEPARENT: "00-1", DISBATCH_STEP_NAME: "sum", DISBATCH_NODE: "theirs" };
  const lines = [first, { DISBATCH_TASK_ID: "b" }].map((env) => `${stringify({ task: {}, env })}\n`).join("");
  const program = `await runWarm(() => console.log(...${stringify(Object.keys(first))}.map((name) => process.env[name])));`;
  const { out, err } = await plugin(program, lines, { ...warm, DISBATCH_NODE: "own" });
  assert.deepEqual([out, err], ["a 00-1 sum theirs\nb undefined undefined own\n", ""]);
});

test("a batch one by one and at once", async () => {
  const both = `${stringify({ tasks: [line("a", 1), line("b", -2)] })}\n`;
  const one = await plugin("await run(work);", both, warm);
  assert.deepEqual([one.code, one.out], [0, ""]);
  assert.equal(one.said.filter(({ id, stdout }) => id === "a" && stdout).map(({ stdout }) => stdout).join(""), "out 1\n");
  assert.deepEqual(one.said.at(-1), { id: "b", done: { exit: 1 } });
  const waits = `await run(async (task) => {
    await new Promise((written) => process.stdout.write("a", written));
    await new Promise((written) => process.stderr.write("b", "utf8", written));
  });`;
  const written = await plugin(waits, both, warm);
  assert.deepEqual([written.code, dones(written.said)], [0, [{ exit: 0 }, { exit: 0 }]]);
  const own = await plugin("await runBatch(([, two]) => { two.print('two'); two.done(3); });", both, warm);
  assert.deepEqual(own.said, [{ id: "b", stdout: "two\n" }, { id: "b", done: { exit: 3 } }, { id: "a", done: { exit: 0 } }]);
  const bad = await plugin("await runBatch(() => { throw new Error('no'); });", both, warm);
  assert.deepEqual(dones(bad.said), [{ exit: 1 }, { exit: 1 }]);
});

test("a line ends at a line feed alone", async () => {
  // Sent as it is, and in more pieces than one.
  const text = `\u2028\u2029${"x".repeat(200_000)}`;
  const one = { task: { params: { text } }, env: { DISBATCH_TASK_ID: "a" } };
  const program = (run, task) => `await ${run}((given) => { const task = ${task}; task.result({ n: task.params.text.length }); });`;
  for (const [name, task, message] of [["runWarm", "given", one], ["runBatch", "given[0]", { tasks: [one] }]]) {
    const { code, said } = await plugin(program(name, task), `${stringify(message)}\n`.repeat(2), warm);
    assert.equal(code, 0);
    assert.deepEqual(said.filter(({ result }) => result).map(({ result }) => result.n), [text.length, text.length]);
  }
});

test("long text of a batch is in lines that the runner takes", async () => {
  const one = `${stringify({ tasks: [line("a", 1)] })}\n`;
  const program = 'await runBatch(([task]) => task.print("a" + "🦀".repeat(300_000) + "\\u0001".repeat(300_000) + "\\ud83e"));';
  const { said } = await plugin(program, one, warm);
  assert.ok(said.every((line) => Buffer.byteLength(stringify(line)) < 2 * 1024 * 1024));
  const whole = said.map(({ stdout = "" }) => stdout).join("");
  assert.ok(whole === `a${"🦀".repeat(300_000)}${"\u0001".repeat(300_000)}\ufffd\n`, `${whole.length}`);
});

test("only what can be stored is sent", () => {
  const task = new Task({ params: { a: 1 }, secure_params: { password: "horse" } });
  assert.equal(task.secureParams.password, "horse");
  assert.ok(!JSON.stringify(task).includes("horse"));
  assert.throws(() => task.status(0), /status must be a positive integer/);
  assert.throws(() => task.result([1]), /result must be an object/);
  assert.throws(() => task.result({ a: "x".repeat(1024 * 1024) }), /result must have at most 1048576 bytes/);
  assert.throws(() => new Task(5), /the task must be an object/);
});

test("a task is committed under the name of its attempt", async () => {
  const task = new Task({}, { env: { DISBATCH_COMMIT: "6b0003bb686c8275d8013333.2", DISBATCH_DATABASE: "disbatch" } });
  assert.deepEqual(task.commitDocument(), { _id: "6b0003bb686c8275d8013333.2", status: 1 });
  assert.equal(task.commitDocument(7).status, 7);
  assert.throws(() => task.commitDocument(0), /status must be a positive integer/);
  assert.throws(() => new Task({}, { env: {} }).commitDocument(), /its manifest has no "commits": true/);
  await assert.rejects(task.commit({ inTransaction: () => false }), /commit needs a session with a transaction/);
});

test("a queue is drained", async () => {
  const dev = await startDev({ plugins: [new URL("../../conformance/plugins", import.meta.url).pathname] });
  try {
    const queue = await dev.queue("drained", "Conformance::TypeScript");
    const ids = await dev.client.submitMany(queue, [0, 1, 2].map((n) => ({ do: [["print", `${n}`]] })));
    const tasks = await dev.drain(queue);
    assert.deepEqual(tasks.map(({ id, stdout }) => [id, stdout]), ids.map((id, n) => [id, `${n}\n`]));
  } finally {
    await dev.stop();
  }
  await assert.rejects(startDev({ program: "no-such-program" }), /DISBATCH_PROGRAM/);
});
