/** Writes a plugin. See docs/plugins.md for what a plugin is. */

import { constants, openSync, readFileSync, writeSync } from "node:fs";
import { parse, stringify } from "./json.js";
import type { Json } from "./types.js";

const MAX_SAVED = 1024 * 1024;
// In UTF-16 units. A control line has at most 2 MiB; a unit has six bytes at most as JSON.
const MAX_TEXT = 256 * 1024;

export type Work = (task: Task) => unknown;

/** Writes all of it, also into a pipe that is full. */
function write(fd: number, text: string): void {
  let rest = Buffer.from(text);
  while (rest.length > 0) {
    try {
      rest = rest.subarray(writeSync(fd, rest));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    }
  }
}

/** What `DISBATCH_CONTROL` names, or -1. */
let opened: number | undefined;

function open(path: string): number {
  try {
    return openSync(path, constants.O_WRONLY | constants.O_APPEND);
  } catch (error) {
    write(2, `cannot open DISBATCH_CONTROL: ${error}; progress and results are lost\n`);
    return -1;
  }
}

/** The control descriptor, or its path in a container or a pod. Without a runner, as when a plugin is tried by hand, what is sent goes nowhere. */
function send(message: Json): void {
  const { DISBATCH_CONTROL_FD: number, DISBATCH_CONTROL: path } = process.env;
  const fd = number ? Number(number) : path ? (opened ??= open(path)) : -1;
  if (fd >= 0) write(fd, `${stringify(message)}\n`);
}

/** The answer to a question; `value` and `by` are null if nobody has answered in time. */
export interface Answer {
  value: Record<string, Json> | null;
  by: string | null;
  at: Json;
  attempt: number;
}

export interface AskOptions {
  /** Users, and roles as `role:operator`. */
  who?: string[];
  /** Seconds from now, or a time. */
  deadline?: number | string;
  /** What is done then. */
  onDeadline?: "cancel" | "continue";
}

/** What `commit` needs of a `ClientSession` of `mongodb`, which nothing else here needs. */
export interface Session {
  inTransaction(): boolean;
  readonly client: { db(name: string): { collection(name: string): { insertOne(document: Json, options: Json): Promise<unknown> } } };
}

interface Entry {
  task: Json;
  env?: Record<string, string>;
  work_dir?: string;
}

/** A task, as its plugin gets it. */
export class Task {
  readonly document: Record<string, Json>;
  readonly params: Json;
  /** Not part of `document`, so that it is not printed with it. */
  readonly secureParams!: Record<string, Json>;
  /** What an earlier run has saved. */
  readonly storage: Json;
  /** The answer to what the attempt before has asked. */
  readonly answer: Answer | null;
  /** What differs from task to task, also where one process takes many. */
  readonly env: Record<string, string | undefined>;
  readonly workDir: string;
  /** Of a batch: aborted when the task is to end. */
  readonly signal: AbortSignal;
  isDone = false;
  private readonly controller = new AbortController();

  constructor(
    document: Json,
    given: { env?: Record<string, string> | undefined; workDir?: string | undefined } = {},
    private readonly inBatch = false,
  ) {
    if (document === null || typeof document !== "object" || Array.isArray(document)) throw new TypeError(`the task must be an object, got ${stringify(document)}`);
    const { secure_params, ...rest } = document;
    this.document = rest;
    Object.defineProperty(this, "secureParams", { value: secure_params ?? {}, enumerable: false });
    this.params = rest.params ?? {};
    this.storage = rest.storage ?? null;
    this.answer = rest.answer ?? null;
    this.env = given.env ?? process.env;
    this.workDir = given.workDir ?? this.env.DISBATCH_WORK_DIR ?? ".";
    this.signal = this.controller.signal;
  }

  /** The task of a process that has been started for it alone. */
  static fromStdin(): Task {
    return new Task(parse(readFileSync(0, "utf8")));
  }

  get id(): string {
    return this.document._id?.$oid ?? this.document._id ?? this.env.DISBATCH_TASK_ID ?? "";
  }

  /** The queue's id; its name is `env.DISBATCH_QUEUE`. */
  get queue(): string {
    return this.document.queue?.$oid ?? "";
  }

  get attempt(): number {
    return Number(this.env.DISBATCH_ATTEMPT ?? 1);
  }

  get cancelled(): boolean {
    return this.signal.aborted;
  }

  /** How far it is, from 0 to 100, and what it does. */
  progress(percent?: number, message?: string): void {
    const progress: Json = {};
    if (percent !== undefined && !Number.isNaN(percent)) progress.percent = Math.min(100, Math.max(0, percent));
    if (message) progress.message = message;
    if (Object.keys(progress).length > 0) this.send({ progress });
  }

  /** The structured result. The last one wins. */
  result(value: Record<string, Json>): void {
    if (value === null || typeof value !== "object" || Array.isArray(value)) throw new TypeError("result must be an object");
    this.send({ result: sized("result", value) });
  }

  /** What the next run finds in `storage`. The last one wins. */
  save(value: Json): void {
    this.send({ storage: sized("storage", value) });
  }

  /** Asks a person: return after this, and the next attempt has `answer`. */
  ask(title: string, form?: Record<string, Json>, { onDeadline, ...options }: AskOptions = {}): void {
    this.send({ await: { title, ...(form && { form }), ...options, ...(onDeadline && { on_deadline: onDeadline }) } });
  }

  /**
   * It has stopped where it was, as SIGTERM told it to: save what the next attempt goes on with, and return after this. Needs
   * `"interruptible": true` in the manifest.
   */
  interrupted(): void {
    this.send({ interrupted: true });
  }

  /** The final status in place of 1: a positive number. */
  status(status: number): void {
    this.send({ status: final(status) });
  }

  /**
   * Ends the task with `status` in the transaction of `session`, as its last statement: the effects are there and the task has ended, or
   * neither. Needs `"commits": true` in the manifest. A duplicate key (11000) says that the run has lost its task, or has ended it before:
   * let the transaction be aborted.
   */
  async commit(session: Session, status = 1): Promise<void> {
    const document = this.commitDocument(status);
    if (!session.inTransaction()) throw new TypeError("commit needs a session with a transaction");
    await session.client.db(this.env.DISBATCH_DATABASE ?? "").collection("tasks.commits").insertOne(document, { session });
  }

  /** What `commit` inserts into the collection `tasks.commits` of the database `env.DISBATCH_DATABASE`. */
  commitDocument(status = 1): { _id: string; status: number } {
    const name = this.env.DISBATCH_COMMIT;
    if (!name) throw new TypeError('the task cannot be committed: its manifest has no "commits": true, or another step comes after this one');
    return { _id: name, status: final(status) };
  }

  /** Adds a document to the collection `reports`. */
  report(document: Record<string, Json>): void {
    this.send({ report: document });
  }

  /** A line of the task's standard error, at once. */
  log(text: string): void {
    this.write("stderr", `${text}\n`);
  }

  /** A line of the task's standard output, at once; also in batches, where `console.log` belongs to no task. */
  print(text: string): void {
    this.write("stdout", `${text}\n`);
  }

  /** In a batch: the task is over, and failed unless `exit` is 0. What was not answered when `work` returns is over then. */
  done(exit = 0): void {
    if (this.isDone) throw new TypeError(`the task ${this.id} is over already`);
    this.isDone = true;
    if (this.inBatch) this.send({ done: { exit } });
    else send({ done: { id: this.id, exit } });
  }

  /** @internal */
  cancel(): void {
    this.controller.abort();
  }

  /** @internal */
  write(stream: "stdout" | "stderr", text: string): void {
    if (!this.inBatch) return write(stream === "stdout" ? 1 : 2, text);
    // As if it were written: the runner takes no half of a character.
    const whole = Buffer.from(text).toString();
    for (let first = 0; first < whole.length; ) {
      let end = Math.min(whole.length, first + MAX_TEXT);
      // Both halves of a character go together.
      if (end < whole.length && /[\uD800-\uDBFF]/.test(whole.charAt(end - 1))) end--;
      send({ id: this.id, [stream]: whole.slice(first, end) });
      first = end;
    }
  }

  private send(message: Json): void {
    send(this.inBatch ? { id: this.id, ...message } : message);
  }
}

function final(status: number): number {
  if (!Number.isInteger(status) || status < 1) throw new TypeError(`status must be a positive integer, got ${status}`);
  return status;
}

function sized(name: string, value: Json): Json {
  const size = Buffer.byteLength(stringify(value));
  if (size > MAX_SAVED) throw new TypeError(`${name} must have at most ${MAX_SAVED} bytes, got ${size}`);
  return value;
}

/** Does it, and returns what would be the exit status of a process of its own, and why. */
async function attempt(work: () => unknown): Promise<[number, string]> {
  try {
    await work();
    return [0, ""];
  } catch (error) {
    return [1, `${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`];
  }
}

/** Whether the runner gives this process task after task. */
export function isWarm(): boolean {
  return process.env.DISBATCH_WARM === "1";
}

/**
 * Does the task on standard input, or where the manifest says `warm`, one task after the other; then exits.
 * An error is a failure: it is printed on standard error.
 */
export async function run(work: Work): Promise<never> {
  if (isWarm()) return runWarm(work);
  const [code, why] = await attempt(() => work(Task.fromStdin()));
  write(2, why);
  process.exit(code);
}

/** Those of standard input. `readline` also ends one at U+2028, which JSON has as it is. */
async function* lines(): AsyncGenerator<string> {
  let rest: string[] = [];
  process.stdin.setEncoding("utf8");
  for await (const chunk of process.stdin) {
    const [end = "", ...others] = String(chunk).split("\n");
    rest.push(end);
    for (const other of others) {
      yield rest.join("");
      rest = [other];
    }
  }
  const last = rest.join("");
  if (last !== "") yield last;
}

/** Does task after task, also those of a manifest with `batch`, one at a time; without a runner, the one on standard input. */
export async function runWarm(work: Work): Promise<never> {
  if (!isWarm()) return run(work);
  for await (const line of lines()) {
    const { tasks, inBatch } = read(line);
    for (const task of tasks) {
      const restore = inBatch ? standFor(task) : adopt(task);
      const [code, why] = await attempt(() => work(task));
      restore();
      if (why) task.write("stderr", why);
      task.done(code);
    }
  }
  process.exit(0);
}

/**
 * Gives `work` all tasks of a line at once: those of a manifest with `batch`. Answer each with `done` as soon as it is.
 * What `work` has not answered when it returns has succeeded; if it throws, that has failed. The `signal` of a task that is to
 * end is aborted. Without a runner, `work` gets the one task on standard input.
 */
export async function runBatch(work: (tasks: Task[]) => unknown): Promise<never> {
  if (!isWarm()) return run((task) => work([task]));
  const known = new Map<string, Task>();
  let before: Promise<unknown> = Promise.resolve();
  for await (const line of lines()) {
    const { tasks, cancel } = read(line);
    if (cancel !== undefined) {
      known.get(cancel)?.cancel();
      continue;
    }
    for (const task of tasks) known.set(task.id, task);
    // Lines are read meanwhile, as they may ask for the end of a task.
    before = before.then(async () => {
      const [code, why] = await attempt(() => work(tasks));
      for (const task of tasks) {
        // Its next attempt may wait already.
        if (known.get(task.id) === task) known.delete(task.id);
        if (task.isDone) continue;
        if (why) task.write("stderr", why);
        task.done(code);
      }
    });
  }
  await before;
  process.exit(0);
}

/** The tasks of a line and whether they may be several, or which one is to end. */
function read(line: string): { tasks: Task[]; inBatch: boolean; cancel?: string } {
  const message = parse(line);
  if (message.cancel) return { tasks: [], inBatch: true, cancel: message.cancel.id };
  const inBatch = message.tasks !== undefined;
  const entries: Entry[] = inBatch ? message.tasks : message.task === undefined ? [] : [message];
  return { inBatch, tasks: entries.map(({ task, env = {}, work_dir }) => new Task(task, { env, workDir: work_dir }, inBatch)) };
}

/** Programs that the task starts have its variables, as if the process were its own. The next task may lack some of them. */
function adopt(task: Task): () => void {
  const before = Object.keys(task.env).map((name) => [name, process.env[name]] as const);
  Object.assign(process.env, task.env);
  return () => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  };
}

/** What is printed in a batch would belong to no task. */
function standFor(task: Task): () => void {
  const streams = [
    [process.stdout, "stdout"],
    [process.stderr, "stderr"],
  ] as const;
  const before = streams.map(([stream]) => stream.write);
  for (const [stream, name] of streams) {
    stream.write = ((chunk: string | Uint8Array, encoding?: unknown, done?: () => void) => {
      task.write(name, typeof chunk === "string" ? chunk : Buffer.from(chunk).toString());
      (typeof encoding === "function" ? encoding : done)?.();
      return true;
    }) as typeof stream.write;
  }
  return () => {
    for (const [n, [stream]] of streams.entries()) stream.write = before[n] as typeof stream.write;
  };
}
