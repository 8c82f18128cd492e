/** How requests are sent, and sent again. */

import { readFileSync } from "node:fs";
import { type IncomingMessage, request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import { ApiError, apiError, DisbatchError, ProtocolError, QuotaExceeded, Rejected, RequestTimeout, TooManyRequests, Unreachable } from "./errors.js";
import { parse, stringify } from "./json.js";
import type { Json } from "./types.js";
import { VERSION } from "./version.js";

/** A request. `repeatable`: doing it twice is as good as once. */
export interface Call {
  method: string;
  path: string;
  query?: Record<string, Json>;
  body?: Json;
  content?: Uint8Array;
  headers?: Record<string, string>;
  repeatable?: boolean;
  /** Seconds that an answer may take beyond the timeout. */
  patience?: number;
}

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
}

export interface ClientOptions {
  /** Of the DCI; it may have a path. Else `DISBATCH_URL`, or http://localhost:8080. */
  url?: string;
  /** Else `DISBATCH_TOKEN`. */
  token?: string;
  /** Else `DISBATCH_USERNAME` and `DISBATCH_PASSWORD`. */
  username?: string;
  password?: string;
  /** A PEM file with the only certificates that are trusted. */
  caFile?: string;
  /** How long an answer may take, in seconds: 30. */
  timeout?: number;
  /** How often a request that may be repeated is tried again: 5. */
  retries?: number;
  /** Before the n-th retry there is a pause of up to `backoff` * 2^n seconds (0.5), `backoffMax` (15) at most. */
  backoff?: number;
  backoffMax?: number;
  /** The longest pause in seconds that a server may ask for: 120. */
  retryAfterMax?: number;
  /** The header of this name, or a function that has it. */
  traceparent?: string | (() => string | undefined);
  /** Told of what the server warns about; without it, the process is. */
  onWarning?: (warning: string) => void;
}

// Milliseconds after which a stream has come about, though it was silent.
const STEADY = 5000;

// Of these the server has seen nothing.
const NOT_SENT = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT|ERR_TLS_.*|.*CERT.*|.*SIGNATURE.*|ERR_SSL_.*)$/;

export class Transport {
  readonly url: string;
  readonly timeout: number;
  private readonly headers: Record<string, string>;
  private readonly request: (url: string, init: Init) => Promise<Reply>;

  constructor(readonly options: ClientOptions) {
    const env = process.env;
    this.url = (options.url ?? env.DISBATCH_URL ?? "http://localhost:8080").replace(/\/+$/, "");
    // It is part of messages.
    if (/\/\/[^/?#]*@/.test(this.url)) throw new TypeError("the address of the DCI has a name or a password in it: use username and password");
    if (!/^https?:$/.test(new URL(this.url).protocol)) throw new TypeError(`${this.url} is no address of a DCI: http://HOST:PORT or https://..`);
    this.timeout = options.timeout ?? 30;
    this.headers = { "user-agent": `disbatch-typescript/${VERSION}` };
    const given = options.token !== undefined || options.username !== undefined;
    const token = given ? options.token : env.DISBATCH_TOKEN;
    const username = given ? options.username : env.DISBATCH_USERNAME;
    if (token) this.headers.authorization = `Bearer ${token}`;
    else if (username) {
      const password = options.password ?? env.DISBATCH_PASSWORD ?? "";
      this.headers.authorization = `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
    }
    this.request = requesting(options.caFile === undefined ? undefined : readFileSync(options.caFile));
  }

  /** Sends a request until it is answered, or is not to be sent again. */
  async send(call: Call): Promise<Answer> {
    return this.again(call, async () => {
      const limit = new Limit(this.timeout + (call.patience ?? 0));
      try {
        const reply = await this.once(call, limit);
        return { status: reply.status, headers: reply.headers, text: await text(reply) };
      } catch (error) {
        throw this.failure(call, error, limit);
      } finally {
        limit.end();
      }
    });
  }

  async json(call: Call): Promise<Json> {
    return decoded(call, await this.send(call));
  }

  /** Tries until it works, or is not to be tried again. */
  async again<T>(call: Call, attempt: () => Promise<T>): Promise<T> {
    for (let tried = 0; ; tried++) {
      try {
        return await attempt();
      } catch (error) {
        await this.pause(call, error, tried);
      }
    }
  }

  /** Opens an answer, and hands over what comes of it: all of it has come when `take` returns. */
  async *open(call: Call, answered: (reply: Reply) => void): AsyncGenerator<Uint8Array> {
    const limit = new Limit(this.timeout);
    try {
      const reply = await this.once(call, limit);
      answered(reply);
      limit.again();
      for await (const chunk of received(reply)) {
        limit.end();
        yield chunk;
        limit.again();
      }
    } catch (error) {
      throw this.failure(call, error, limit);
    } finally {
      limit.stop();
    }
  }

  private async once(call: Call, limit: Limit): Promise<Reply> {
    const { traceparent, onWarning } = this.options;
    const trace = typeof traceparent === "function" ? traceparent() : traceparent;
    const headers: Record<string, string> = { ...this.headers, accept: "application/json", ...call.headers };
    if (trace) headers.traceparent = trace;
    let body: string | Uint8Array | undefined = call.content;
    if (body !== undefined) headers["content-type"] = "application/octet-stream";
    else if (call.body !== undefined) {
      headers["content-type"] = "application/json";
      body = stringify(call.body);
    }
    const init = { method: call.method, headers, signal: limit.signal, ...(body === undefined ? {} : { body }) };
    const reply = await this.request(this.url + target(call), init);
    const warning = reply.headers.get("disbatch-warning");
    if (warning !== null) {
      const text = `${call.method} ${call.path}: ${warning}`;
      if (onWarning) onWarning(text);
      else process.emitWarning(text, "DisbatchWarning");
    }
    if (reply.status < 200 || reply.status > 299) throw refusal(call, reply, await text(reply));
    return reply;
  }

  /** What a failure of the connection is for the caller. */
  private failure(call: Call, error: unknown, limit: Limit): unknown {
    if (error instanceof DisbatchError) return error;
    const name = `${call.method} ${call.path}: ${this.url}`;
    if (limit.isOver) return new RequestTimeout(`${name} does not answer in time`, true, { cause: error });
    if (!(error instanceof ConnectionFailure)) return error;
    const cause = error.cause as NodeJS.ErrnoException;
    const code = String(cause.code ?? "");
    return new Unreachable(`${name}: ${cause.message || code}`, !NOT_SENT.test(code), { cause });
  }

  /** Waits until a stream that was lost is opened again; returns the number of tries. One that was there for a while was not in vain. */
  async resume(call: Call, error: unknown, tried: number, answered: number | undefined): Promise<number> {
    const since = answered !== undefined && performance.now() - answered > STEADY ? 0 : tried;
    await this.pause(call, error, since);
    return since + 1;
  }

  /** Waits until the next try. Throws the error if there is to be none. */
  async pause(call: Call, error: unknown, tried: number): Promise<void> {
    const { retries = 5, backoff = 0.5, backoffMax = 15, retryAfterMax = 120 } = this.options;
    if (tried >= retries || !isWorthIt(call, error)) throw error;
    const jitter = Math.random() * Math.min(backoffMax, backoff * 2 ** tried);
    const asked = error instanceof ApiError ? error.retryAfter : undefined;
    if (asked !== undefined && asked > retryAfterMax) throw error;
    const seconds = asked === undefined ? jitter : asked + Math.min(jitter, 1);
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
}

/** Aborts a request that takes too long; an idle time, if it begins again. */
class Limit {
  private readonly controller = new AbortController();
  private timer: NodeJS.Timeout | undefined;
  isOver = false;

  constructor(private readonly seconds: number) {
    this.again();
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  again(): void {
    this.end();
    this.timer = setTimeout(() => {
      this.isOver = true;
      this.controller.abort();
    }, this.seconds * 1000);
  }

  end(): void {
    clearTimeout(this.timer);
  }

  /** Nobody reads on. */
  stop(): void {
    this.end();
    this.controller.abort();
  }
}

function isWorthIt(call: Call, error: unknown): boolean {
  if (error instanceof Unreachable) return call.repeatable === true || !error.sent;
  if (!(error instanceof ApiError) || error instanceof QuotaExceeded || error instanceof Rejected) return false;
  // 408 and 429 say that nothing was done. After the others it may have been.
  return error instanceof TooManyRequests || error.status === 408 || (call.repeatable === true && [502, 503, 504].includes(error.status));
}

export function decoded(call: Call, answer: Answer): Json {
  try {
    return parse(answer.text);
  } catch (error) {
    throw new ProtocolError(`${call.method} ${call.path}: the answer is no JSON; is this the address of a DCI?`, { cause: error });
  }
}

function refusal(call: Call, reply: Reply, text: string): ApiError {
  let body: Json = null;
  try {
    body = parse(text);
  } catch {
    // A proxy says it in HTML.
  }
  return apiError(reply.status, body, retryAfter(reply.headers.get("retry-after")), `${call.method} ${call.path}`);
}

/** Seconds, or a date. */
export function retryAfter(value: string | null): number | undefined {
  if (value === null) return undefined;
  if (/^\d+$/.test(value.trim())) return Number(value);
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, (at - Date.now()) / 1000);
}

function asText(value: Json): string {
  if (Array.isArray(value)) return value.map(asText).join(",");
  return value instanceof Date ? value.toISOString() : String(value);
}

/** Texts of tags may have commas. */
function inQuery(name: string, value: Json): string {
  return Array.isArray(value) && value.length > 0 && ["tags", "any_tags"].includes(name) ? stringify(value) : asText(value);
}

function target(call: Call): string {
  const query = Object.entries(call.query ?? {})
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([key, value]) => `${encodeURIComponent(key)}=${encodeURIComponent(inQuery(key, value))}`);
  return query.length > 0 ? `${call.path}?${query.join("&")}` : call.path;
}

export function segment(text: string): string {
  if (["", ".", ".."].includes(text)) throw new TypeError(`"${text}" cannot be part of an address`);
  return encodeURIComponent(text);
}

/** An answer whose body is still to come. */
export interface Reply {
  status: number;
  headers: Headers;
  body: AsyncIterable<Uint8Array>;
}

interface Init {
  method: string;
  headers: Record<string, string>;
  signal: AbortSignal;
  body?: string | Uint8Array;
}

/**
 * Not the built-in `fetch`: that of Node 20 takes an answer that breaks off for whole if its connection was to be closed, and knows no way to name a
 * certificate.
 */
function requesting(ca: Buffer | undefined): (url: string, init: Init) => Promise<Reply> {
  return (url, { body, ...init }) =>
    new Promise((resolve, reject) => {
      const length = body === undefined ? (init.method === "GET" ? {} : { "content-length": "0" }) : { "content-length": String(Buffer.byteLength(body)) };
      const options = { ...init, headers: { ...init.headers, ...length }, ...(ca && { ca }) };
      const answered = (answer: IncomingMessage): void => {
        const headers = new Headers();
        for (const [name, values] of Object.entries(answer.headersDistinct)) for (const value of values ?? []) headers.append(name, value);
        resolve({ status: answer.statusCode ?? 0, headers, body: answer });
      };
      const request = url.startsWith("https:") ? httpsRequest(url, options, answered) : httpRequest(url, options, answered);
      request.on("error", (cause) => reject(new ConnectionFailure(cause)));
      request.end(body);
    });
}

/** Tells what went wrong with a connection from what is wrong in a call. */
class ConnectionFailure extends Error {
  constructor(cause: unknown) {
    super("the connection failed", { cause });
  }
}

async function text(reply: Reply): Promise<string> {
  const all: Uint8Array[] = [];
  for await (const chunk of received(reply)) all.push(chunk);
  return Buffer.concat(all).toString();
}

async function* received(reply: Reply): AsyncGenerator<Uint8Array> {
  const chunks = reply.body[Symbol.asyncIterator]();
  try {
    for (;;) {
      const { done, value } = await chunks.next().catch((cause: unknown) => {
        throw new ConnectionFailure(cause);
      });
      if (done) return;
      yield value;
    }
  } finally {
    await chunks.return?.();
  }
}
