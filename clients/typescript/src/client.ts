/** The client. */

import { randomUUID } from "node:crypto";
import { ApiError, ProtocolError, RequestTimeout, TaskFailed, Unreachable, VersionError, WaitTimeout } from "./errors.js";
import * as fileSets from "./files.js";
import { EventReader, Position } from "./follow.js";
import { type Call, type ClientOptions, decoded, segment, Transport } from "./http.js";
import { snake, stringify } from "./json.js";
import type {
  AnswerResult, ArrayJob, CancelResult, Explained, FileSet, Filter, Json, Queue, QueueSettings, RerunOptions, RerunResult, RetryResult, Schedule, ScheduleFields, SubmitOptions, TaskEvent, TaskInfo, When,
} from "./types.js";
import { VERSION } from "./version.js";

// One question to the server: a proxy in between may give up on a connection that is silent for a minute.
const LONG_POLL = 50;
const MOST_TASKS = 1000;
const MOST_BYTES = 8 * 1024 * 1024;
const PAGE = 1000;
// Milliseconds before the next question after one that was answered too early.
const EARLY = 200;

const WORDS = new Map([
  [-7, "deferred"],
  [-6, "orphaned"],
  [-5, "cancelled"],
  [-4, "blocked"],
  [-3, "terminated"],
  [-2, "queued"],
  [-1, "claimed"],
  [0, "running"],
  [1, "succeeded"],
  [2, "failed"],
]);
const ENDED_WITHOUT_RESULT = [-6, -5, -3];

export type Stream = "stdout" | "stderr";

export interface OutputOptions {
  attempt?: number;
  follow?: boolean;
}

/** Speaks to a DCI. */
export class Client {
  private readonly transport: Transport;

  /** Whatever is not given comes from the environment. */
  constructor(options: ClientOptions = {}) {
    this.transport = new Transport(options);
  }

  /** The address of the DCI. */
  get url(): string {
    return this.transport.url;
  }

  /** A client that passes on this trace. */
  withTraceparent(traceparent: string | (() => string | undefined)): Client {
    return new Client({ ...this.transport.options, traceparent });
  }

  /** Any other route of the API. It is repeated after failures if its method allows that, or `repeatable` says so. */
  async request(method: string, path: string, options: { query?: Record<string, Json>; json?: Json; repeatable?: boolean } = {}): Promise<Json> {
    const repeatable = options.repeatable ?? ["GET", "HEAD", "PUT"].includes(method);
    const call: Call = { method, path, query: options.query, body: options.json, repeatable };
    const answer = await this.transport.send(call);
    return answer.text === "" ? null : decoded(call, answer);
  }

  /** The server's version. */
  async version(): Promise<string> {
    const call = reading("/info");
    const answer = await this.transport.send(call);
    const body = decoded(call, answer);
    if (body === null || typeof body !== "object" || !("routes" in body)) {
      throw new ProtocolError("GET /info: this is not the answer of a DCI; is the address right?");
    }
    return answer.headers.get("disbatch-version") ?? "unknown";
  }

  /** Throws a `VersionError` unless the server's version is one that this library is for. */
  async check(): Promise<string> {
    const server = await this.version();
    // Before 1.0, a minor version may change what another one relies on.
    const want = VERSION.split(".").slice(0, VERSION.startsWith("0.") ? 2 : 1).join(".");
    if (!`${server}.`.startsWith(`${want}.`)) {
      throw new VersionError(
        `the server has version ${server}, and this library (${VERSION}) is for servers of version ${want}: install the version of the library that the server has`,
      );
    }
    return server;
  }

  /** Submits a task, or with `array` an array of them, and returns its id. */
  async submit(queue: string, params: Json = {}, options: SubmitOptions = {}): Promise<string> {
    const body = { queue, params, ...dotted({ ...options, idempotencyKey: options.idempotencyKey || randomUUID() }) };
    const answer = await this.transport.json({ method: "POST", path: "/tasks", body, repeatable: true });
    return answer?.array ? answer.array.id : inserted(answer)[0];
  }

  /** Submits a task for each params, 1000 and 8 MiB in one request, and returns their ids in the same order. */
  async submitMany(queue: string, params: Iterable<Json>, options: SubmitOptions = {}): Promise<string[]> {
    const key = options.idempotencyKey || randomUUID();
    const ids: string[] = [];
    let number = 0;
    for (const part of parts(params)) {
      if (number > 0 && options.chain) throw new TypeError("a chain cannot be longer than one request");
      const idempotencyKey = number === 0 ? key : `${key}/${number}`;
      const body = { queue, params: part, ...dotted({ ...options, idempotencyKey }) };
      ids.push(...inserted(await this.transport.json({ method: "POST", path: "/tasks", body, repeatable: true })));
      number++;
    }
    return ids;
  }

  /** A task. Output that is too large for it is an id there; `output` has it. */
  async get(id: string): Promise<TaskInfo> {
    return taskInfo(await this.transport.json(reading(`/tasks/${segment(id)}`, { ".details": 1 })));
  }

  /** The task when it has ended. Throws a `WaitTimeout` if it has not within `timeout` seconds. */
  async wait(id: string, options: { timeout?: number } = {}): Promise<TaskInfo> {
    const end = options.timeout === undefined ? undefined : performance.now() + options.timeout * 1000;
    for (;;) {
      // The server takes whole seconds.
      const left = end === undefined ? LONG_POLL : Math.min(LONG_POLL, Math.max(0, Math.ceil((end - performance.now()) / 1000)));
      const call = { ...reading(`/tasks/${segment(id)}/wait`, { ".timeout": left }), patience: left };
      const asked = performance.now();
      const state = await this.transport.json(call);
      if (state.ended) return this.get(id);
      if (end !== undefined && performance.now() >= end) {
        throw new WaitTimeout(`task ${id} has not ended after ${options.timeout} s: it is ${state.word}`, state);
      }
      if (performance.now() - asked < left * 1000) await new Promise((resolve) => setTimeout(resolve, EARLY));
    }
  }

  /** Waits for the end and returns the result. Throws a `TaskFailed` unless the task's status is 1, succeeded. */
  async result(id: string, options: { timeout?: number } = {}): Promise<Json> {
    const task = await this.wait(id, options);
    if (task.status === 1) return task.result ?? null;
    const last = typeof task.stderr === "string" ? task.stderr.trimEnd().split("\n").at(-1) : "";
    throw new TaskFailed(`task ${id} has not succeeded: it is ${task.word} (status ${task.status})${last ? `: ${last}` : ""}`, task);
  }

  async cancel(id: string, options: { reason?: string } = {}): Promise<CancelResult> {
    return this.transport.json({ method: "POST", path: `/tasks/${segment(id)}/cancel`, body: { ...options } });
  }

  /** Answers what a task has asked. A conflict if somebody else has: its `details` have the `answer`. */
  async answer(id: string, value: Record<string, Json>): Promise<AnswerResult> {
    return this.transport.json({ method: "POST", path: `/tasks/${segment(id)}/answer`, body: { value } });
  }

  async retry(id: string, options: { reason?: string } = {}): Promise<RetryResult> {
    return this.transport.json({ method: "POST", path: `/tasks/${segment(id)}/retry`, body: { ...options } });
  }

  /** Runs a task again that has ended, with `params` in place of its own, and with `downstream` those that come after it. */
  async rerun(id: string, options: RerunOptions = {}): Promise<RerunResult> {
    return this.transport.json({ method: "POST", path: `/tasks/${segment(id)}/rerun`, body: { ...options } });
  }

  /** Runs elements of an array again that have ended: those that failed, or all. A bulk job does it in the background. */
  async rerunArray(id: string, options: RerunOptions & { elements?: "failed" | "all" } = {}): Promise<ArrayJob> {
    return this.transport.json({ method: "POST", path: `/arrays/${segment(id)}/rerun`, body: { ...options } });
  }

  /** Why a task does not run, or how it does. */
  async explain(id: string): Promise<Explained> {
    return this.transport.json(reading(`/tasks/${segment(id)}/explain`));
  }

  /** Tasks, the newest first; asks for the next page when it is needed. */
  async *list(options: Filter & { limit?: number } = {}): AsyncGenerator<TaskInfo> {
    const { limit, ...filters } = options;
    let left = limit ?? Infinity;
    let after: string | null = null;
    while (left > 0) {
      const query: Record<string, Json> = { ...snaked(filters), ".limit": Math.min(left, PAGE), ".after": after };
      const page: { tasks: Record<string, Json>[]; next: string | null } = await this.transport.json(reading("/tasks/find", query));
      for (const task of page.tasks) yield taskInfo(task);
      left -= page.tasks.length;
      after = page.next;
      if (after === null) return;
    }
  }

  /** What the task has printed so far; with `follow` piece by piece until its attempt is over, over lost connections. */
  output(id: string, stream?: Stream, options?: OutputOptions & { follow?: false }): Promise<Uint8Array>;
  output(id: string, stream: Stream, options: OutputOptions & { follow: true }): AsyncGenerator<Uint8Array>;
  output(id: string, stream: Stream = "stdout", options: OutputOptions = {}): Promise<Uint8Array> | AsyncGenerator<Uint8Array> {
    const pieces = this.pieces(id, stream, options);
    return options.follow ? pieces : joined(pieces);
  }

  private async *pieces(id: string, stream: Stream, options: OutputOptions): AsyncGenerator<Uint8Array> {
    if (!["stdout", "stderr"].includes(stream)) throw new TypeError(`a task has stdout and stderr, and no ${stream}`);
    const position = new Position();
    let attempt = options.attempt ?? (options.follow ? await this.attempt(id) : undefined);
    for (let tried = 0; ; ) {
      const query = { ".follow": options.follow ? 1 : undefined, ".attempt": attempt, ".from": options.follow ? position.offset : undefined };
      const headers: Record<string, string> = { accept: "*/*", ...(position.offset > 0 && { range: `bytes=${position.offset}-` }) };
      const call = { ...reading(`/tasks/${segment(id)}/${stream}`, query), headers };
      let answered: number | undefined;
      try {
        const chunks = this.transport.open(call, (response) => {
          answered = performance.now();
          position.answered(response);
        });
        for await (const chunk of chunks) {
          // One that was not there yet when it was asked for. What comes after a lost connection is to be of the same.
          if (options.follow && position.last === undefined) attempt ??= await this.attempt(id);
          const fresh = position.fresh(chunk);
          if (fresh.length === 0) continue;
          tried = 0;
          yield fresh;
        }
        return;
      } catch (error) {
        if (error instanceof ApiError && error.status === 416 && position.offset > 0) return;
        // A task may be silent for as long as it likes.
        if (!(answered !== undefined && error instanceof RequestTimeout)) tried = await this.transport.resume(call, error, tried, answered);
      }
    }
  }

  /** The number of the attempt that runs, or was the last; none as long as there is another one to come. */
  private async attempt(id: string): Promise<number | undefined> {
    const task = taskInfo(await this.transport.json(reading(`/tasks/${segment(id)}`, { ".details": 1, ".terse": 1 })));
    return task.word === "running" || task.ended ? (task.attempt ?? undefined) : undefined;
  }

  /** What happens to the task, until it is over; `after` is the `id` of the last event that is known. */
  async *events(id: string, options: { after?: string } = {}): AsyncGenerator<TaskEvent> {
    let { after } = options;
    for (let tried = 0; ; ) {
      const headers: Record<string, string> = { accept: "text/event-stream", ...(after !== undefined && { "last-event-id": after }) };
      const call = { ...reading(`/tasks/${segment(id)}/events`), headers };
      const reader = new EventReader();
      let answered: number | undefined;
      try {
        for await (const chunk of this.transport.open(call, () => (answered = performance.now()))) {
          for (const event of reader.feed(chunk)) {
            tried = 0;
            after = event.id ?? after;
            yield event;
            if (event.event === "end") return;
          }
        }
        throw new Unreachable(`GET ${call.path}: the events broke off`, true);
      } catch (error) {
        if (!(answered !== undefined && error instanceof RequestTimeout)) tried = await this.transport.resume(call, error, tried, answered);
      }
    }
  }

  async queues(options: { details?: boolean } = {}): Promise<Queue[]> {
    return this.transport.json(reading("/queues", { ".details": options.details ? 1 : undefined }));
  }

  /** A queue, by name or id, with its settings. */
  async queue(name: string): Promise<Queue> {
    return this.transport.json(reading(`/queues/${segment(name)}`, { ".details": 1 }));
  }

  /** Creates a queue, with settings such as `threads: 4`, and returns its id. */
  async createQueue(name: string, plugin: string, settings: QueueSettings = {}): Promise<string> {
    const answer = await this.transport.json({ method: "POST", path: "/queues", body: { name, plugin } });
    if (Object.keys(settings).length > 0) await this.updateQueue(name, settings);
    return answer.id.$oid;
  }

  /** Changes settings; null unsets one. */
  async updateQueue(name: string, settings: QueueSettings): Promise<void> {
    await this.transport.send({ method: "POST", path: `/queues/${segment(name)}`, body: snaked(settings), repeatable: true });
  }

  async deleteQueue(name: string): Promise<void> {
    await this.transport.send({ method: "DELETE", path: `/queues/${segment(name)}` });
  }

  /** Nothing more is claimed from the queue; what runs goes on. */
  async pause(queue: string, options: { reason?: string } = {}): Promise<void> {
    await this.updateQueue(queue, { paused: true, reason: options.reason ?? null });
  }

  async resume(queue: string): Promise<void> {
    await this.updateQueue(queue, { paused: null, reason: null });
  }

  async schedules(filters: { queue?: string; tenant?: string; paused?: boolean } = {}): Promise<Schedule[]> {
    const listed: Schedule[] = [];
    for (;;) {
      const query = { ...filters, ".limit": PAGE, ".after": listed.at(-1)?.name };
      const page: Schedule[] = await this.transport.json(reading("/schedules", query));
      listed.push(...page);
      if (page.length < PAGE) return listed;
    }
  }

  async schedule(name: string): Promise<Schedule> {
    return this.transport.json(reading(`/schedules/${segment(name)}`));
  }

  async createSchedule(name: string, queue: string, fields: ScheduleFields = {}): Promise<Schedule> {
    return this.transport.json({ method: "POST", path: "/schedules", body: { name, queue, ...scheduleFields(fields) } });
  }

  /** Changes fields; null takes one back to its default. With `rev` only if it still has that revision. */
  async updateSchedule(name: string, fields: ScheduleFields): Promise<Schedule> {
    return this.transport.json({ method: "POST", path: `/schedules/${segment(name)}`, body: scheduleFields(fields) });
  }

  async deleteSchedule(name: string): Promise<void> {
    await this.transport.send({ method: "DELETE", path: `/schedules/${segment(name)}` });
  }

  async pauseSchedule(name: string): Promise<Schedule> {
    return this.transport.json({ method: "POST", path: `/schedules/${segment(name)}/pause`, body: {}, repeatable: true });
  }

  async resumeSchedule(name: string): Promise<Schedule> {
    return this.transport.json({ method: "POST", path: `/schedules/${segment(name)}/resume`, body: {}, repeatable: true });
  }

  /** Makes a task of the schedule now, and returns its id. */
  async runSchedule(name: string): Promise<string> {
    return (await this.transport.json({ method: "POST", path: `/schedules/${segment(name)}/run`, body: {} })).task;
  }

  /** All file sets, or the newest versions of one. */
  async files(name?: string): Promise<FileSet[]> {
    return fileSets.versions(this.transport, name);
  }

  /** Makes a new version of a set: of a folder, a file, or an object from paths in the set to files or bytes. */
  async putFiles(name: string, source: fileSets.Source, options: { tenant?: string; expires?: When } = {}): Promise<FileSet> {
    return fileSets.put(this.transport, name, source, dotted(options));
  }

  /** Brings the files of a version, the newest unless `version` says another, into a folder, and returns the version. */
  async getFiles(name: string, folder: string, options: { version?: number; prefix?: string } = {}): Promise<FileSet> {
    return fileSets.get(this.transport, name, folder, options);
  }
}

function reading(path: string, query: Record<string, Json> = {}): Call {
  return { method: "GET", path, query, repeatable: true };
}

function snaked(options: object): Record<string, Json> {
  return Object.fromEntries(Object.entries(options).map(([key, value]) => [snake(key), value]));
}

function dotted(options: object): Record<string, Json> {
  return Object.fromEntries(
    Object.entries(options)
      .filter(([, value]) => value !== undefined)
      .map(([key, value]) => [`.${snake(key)}`, value]),
  );
}

function scheduleFields({ secureParams, rev, ...fields }: ScheduleFields): Record<string, Json> {
  return { ...snaked(fields), ...dotted({ secureParams, rev }) };
}

function* parts(params: Iterable<Json>): Generator<Json[]> {
  let part: Json[] = [];
  let size = 0;
  for (const one of params) {
    const more = Buffer.byteLength(stringify(one));
    if (part.length > 0 && (part.length >= MOST_TASKS || size + more > MOST_BYTES)) {
      yield part;
      part = [];
      size = 0;
    }
    part.push(one);
    size += more;
  }
  if (part.length > 0) yield part;
}

function inserted(answer: Json): [string, ...string[]] {
  const listed = answer?.["MongoDB::InsertManyResult"]?.inserted;
  if (!Array.isArray(listed) || listed.length === 0) throw new ProtocolError("POST /tasks: the answer has no ids of tasks");
  return listed.sort((one, other) => one.index - other.index).map((one) => one._id.$oid) as [string, ...string[]];
}

/** A task with plain ids, and its status in a word, as the other answers have it. */
function taskInfo(stored: Record<string, Json>): TaskInfo {
  const { _id, ...task } = stored;
  if (_id !== undefined) task.id = _id?.$oid ?? _id;
  if (task.queue?.$oid) task.queue = task.queue.$oid;
  if (typeof task.status === "number") {
    task.word = WORDS.get(task.status) ?? (task.status > 0 ? "finished" : "held");
    task.ended = task.status > 0 || ENDED_WITHOUT_RESULT.includes(task.status);
  }
  return task as TaskInfo;
}

async function joined(pieces: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const all: Uint8Array[] = [];
  for await (const piece of pieces) all.push(piece);
  return Buffer.concat(all);
}
