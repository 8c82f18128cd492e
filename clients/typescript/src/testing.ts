/** A Disbatch for tests: `disbatch dev` in a folder of its own. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Client } from "./client.js";
import type { QueueSettings, TaskInfo } from "./types.js";

const READY = "following the logs";
const PORT_IS_TAKEN = "cannot be used; choose another with --port";

export interface DevOptions {
  /** Folders of plugins. */
  plugins?: string[];
  /** `disbatch`: else `DISBATCH_PROGRAM`, or that in `PATH`. */
  program?: string;
  /** How long it may take to start, in seconds: 120. */
  timeout?: number;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  return typeof address === "object" && address !== null ? address.port : 0;
}

/** A database, a DEN and a DCI, until `stop`. */
export class Dev {
  readonly client: Client;
  private readonly lines: string[];

  /** @internal */
  constructor(
    readonly url: string,
    readonly folder: string,
    private readonly child: ChildProcess,
    lines: string[],
  ) {
    this.client = new Client({ url });
    this.lines = lines;
  }

  /** What it and its processes have said. */
  get log(): string {
    return this.lines.join("\n");
  }

  /** Where its MongoDB is, with the name of its database, for what writes into the inbox. */
  get mongodb(): string {
    const config = JSON.parse(readFileSync(join(this.folder, "config.json"), "utf8"));
    return config.mongohost.replace("/?", `/${config.database}?`);
  }

  /** A queue that runs tasks; returns its name. */
  async queue(name: string, plugin: string, settings: QueueSettings = {}): Promise<string> {
    await this.client.createQueue(name, plugin, { threads: 4, ...settings });
    return name;
  }

  /** Waits until all tasks of the queue have ended, and returns them in the order of their submission. */
  async drain(queue: string, options: { timeout?: number } = {}): Promise<TaskInfo[]> {
    const end = performance.now() + (options.timeout ?? 60) * 1000;
    const live = ["queued", "claimed", "running", "blocked", "deferred"];
    for (let found = true; found; ) {
      found = false;
      for await (const { id } of this.client.list({ queue, status: live })) {
        found = true;
        await this.client.wait(id, { timeout: Math.max(0, (end - performance.now()) / 1000) });
      }
    }
    const tasks: TaskInfo[] = [];
    for await (const { id } of this.client.list({ queue })) tasks.unshift(await this.client.get(id));
    return tasks;
  }

  /** Ends all of it, running tasks too. */
  async stop(): Promise<void> {
    await end(this.child);
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** The second signal does not wait for tasks. */
async function end(child: ChildProcess): Promise<void> {
  for (const signal of ["SIGTERM", "SIGTERM", "SIGKILL"] as const) {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill(signal);
    const limit = new AbortController();
    await Promise.race([ended, pause(20_000, limit.signal)]);
    limit.abort();
  }
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Starts a `disbatch dev` in a temporary folder. */
export async function startDev(options: DevOptions = {}): Promise<Dev> {
  const first = await start(options);
  if (first instanceof Dev) return first;
  // Somebody else may have been faster.
  const second = first.message.includes(PORT_IS_TAKEN) ? await start(options) : first;
  if (second instanceof Dev) return second;
  throw second;
}

async function start(options: DevOptions): Promise<Dev | Error> {
  const folder = await mkdtemp(join(tmpdir(), "disbatch-dev-"));
  const port = await freePort();
  const program = options.program ?? process.env.DISBATCH_PROGRAM ?? "disbatch";
  const plugins = (options.plugins ?? []).flatMap((path) => ["--plugins", path]);
  const child = spawn(program, ["dev", "--data", folder, "--port", String(port), ...plugins], { stdio: ["ignore", "pipe", "pipe"] });
  const lines: string[] = [];
  const limit = new AbortController();
  const ready = new Promise<string>((resolve) => {
    // To the end: a pipe that nobody reads from stops who writes.
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on("line", (line) => {
        lines.push(line);
        if (line.includes(READY)) resolve("");
      });
    }
    child.on("error", (error) => resolve(`cannot start ${program}: ${error.message}; name it in DISBATCH_PROGRAM`));
    child.on("exit", () => resolve("disbatch dev did not start"));
    void pause((options.timeout ?? 120) * 1000, limit.signal).then(() => resolve("disbatch dev did not start in time"));
  });
  const problem = await ready;
  limit.abort();
  const dev = new Dev(`http://127.0.0.1:${port}`, folder, child, lines);
  if (problem === "") return dev;
  if (child.pid !== undefined) await end(child);
  await rm(folder, { recursive: true, force: true });
  return new Error([problem, ...lines.slice(-20)].join("\n"));
}
