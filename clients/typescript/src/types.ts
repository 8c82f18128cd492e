/** The shapes of what is sent and answered. Keys of answers are those of the REST API. */

/** Any JSON; integers that a number cannot hold are a bigint. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Json = any;

/** A time: a date, ISO 8601, or seconds since 1970. */
export type When = Date | string | number;

/** A task. `id` and `queue` are ids as text; `word` is its status in a word, `ended` whether it is over. */
export interface TaskInfo {
  id: string;
  queue: string;
  status: number;
  word: string;
  ended: boolean;
  params: Json;
  queue_name?: string | null;
  node?: string | null;
  ctime?: string;
  mtime?: string;
  attempt?: number;
  result?: Json;
  progress?: Json;
  stdout?: Json;
  stderr?: Json;
  exit?: Json;
  history?: Json;
  [key: string]: Json;
}

/** Options of tasks that the inbox takes, too, see "The document" of docs/inbox.md. Times are in seconds. */
export interface EnqueueOptions {
  runAt?: When;
  delay?: number;
  timeout?: number;
  grace?: number;
  maxAttempts?: number;
  backoff?: { base?: number; factor?: number; max?: number; jitter?: number };
  deadline?: When;
  unique?: string;
  group?: string;
  priority?: number;
  tags?: string[];
  steps?: Record<string, Json>[];
  files?: Record<string, Json>;
  after?: string[];
  afterWhen?: string;
  afterFailed?: string;
  chain?: boolean;
  locks?: string[];
}

/** Options of a submission, see "Options of a submission" of docs/api.md. */
export interface SubmitOptions extends EnqueueOptions {
  secureParams?: Record<string, Json>;
  tenant?: string;
  array?: string | Json[];
  arrayKey?: string;
  arrayCap?: number;
  arrayFinal?: Record<string, Json>;
  arrayFinalWhen?: string;
  idempotencyKey?: string;
}

/** Fields of a schedule, see "Schedules" of docs/api.md; null takes one back to its default. */
export interface ScheduleFields {
  cron?: string | string[] | null;
  zone?: string | null;
  gap?: string | null;
  fold?: string | null;
  jitter?: number | null;
  start?: When | null;
  end?: When | null;
  calendars?: { name: string; use: string }[] | null;
  overlap?: string | null;
  catchUp?: number | null;
  params?: Record<string, Json> | null;
  secureParams?: Record<string, Json> | null;
  options?: Record<string, Json> | null;
  tenant?: string | null;
  description?: string | null;
  paused?: boolean | null;
  rev?: number;
}

/** Settings of a queue, see "Queues" of docs/api.md; null unsets one. */
export interface QueueSettings {
  threads?: number | null;
  paused?: boolean | null;
  accepting?: boolean | null;
  reason?: string | null;
  timeout?: number | null;
  grace?: number | null;
  maxAttempts?: number | null;
  policy?: string | null;
  [setting: string]: Json;
}

/** Which tasks `list` has. */
export interface Filter {
  queue?: string;
  status?: string | number | (string | number)[];
  node?: string;
  tags?: string[];
  anyTags?: string[];
  text?: string;
  since?: When;
  until?: When;
  createdSince?: When;
  createdUntil?: When;
  newerThan?: number;
  olderThan?: number;
}

/** What happens to a task: `status`, `progress`, `output` or `end`, and its data. */
export interface TaskEvent {
  event: string;
  data: Record<string, Json>;
  id?: string;
}

export interface CancelResult {
  id: string;
  outcome: string;
  status: number;
}

export interface AnswerResult {
  id: string;
  status: number;
}

export interface RetryResult {
  id: string;
  attempt: number;
  status: number;
  retry_of?: string | null;
}

/** What `rerun` and `rerunArray` take. */
export interface RerunOptions {
  downstream?: "none" | "failed" | "all";
  params?: Record<string, Json>;
  reason?: string;
}

export interface RerunResult {
  id: string;
  status: number;
  attempt?: number | null;
  /** Those that come after it and wait again. */
  downstream: string[];
}

/** What runs elements of an array again. */
export interface ArrayJob {
  /** Its progress is at `GET /bulk/:id`. */
  id: string;
  /** How many elements wait or run, and are left alone; null if counting them takes too long. */
  left?: number | null;
}

export interface Explained {
  id: string;
  status: number;
  word: string;
  summary: string;
  gates: { gate: string; open: boolean; text: string }[];
}

/** A queue with its tasks counted. */
export interface Queue {
  id: string;
  name: Json;
  plugin: Json;
  threads: Json;
  queued: number;
  running: number;
  completed: number;
  [key: string]: Json;
}

export interface Schedule {
  id: string;
  name: string;
  queue: string;
  queue_name: string | null;
  cron: string[];
  zone: string;
  paused: boolean;
  rev: number;
  next: string | null;
  [key: string]: Json;
}

export interface FileSet {
  id: string;
  name: string;
  version: number;
  state: string;
  count: number;
  bytes: number;
  [key: string]: Json;
}
