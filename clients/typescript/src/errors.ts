/** What can go wrong, each with a `code` for programs. */

import type { Json, TaskInfo } from "./types.js";

/** Anything that this library throws, but for wrong arguments. */
export class DisbatchError extends Error {
  readonly code: string = "error";

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** There was no answer, or it broke off. What was asked for may have been done, unless `sent` is false. */
export class Unreachable extends DisbatchError {
  override readonly code: string = "unreachable";

  constructor(
    message: string,
    readonly sent: boolean,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The answer did not come in time. */
export class RequestTimeout extends Unreachable {
  override readonly code = "request_timeout";
}

/** What answers is no DCI, or says what this version does not understand. */
export class ProtocolError extends DisbatchError {
  override readonly code = "protocol";
}

/** The server and this library do not fit. */
export class VersionError extends DisbatchError {
  override readonly code = "version";
}

/** The task has not ended in time; it goes on. `task` is how it stood. */
export class WaitTimeout extends DisbatchError {
  override readonly code = "wait_timeout";

  constructor(
    message: string,
    readonly task: Record<string, Json>,
  ) {
    super(message);
  }
}

/** The task has ended, and not with status 1. */
export class TaskFailed extends DisbatchError {
  override readonly code = "task_failed";

  constructor(
    message: string,
    readonly task: TaskInfo,
  ) {
    super(message);
  }
}

/** The server refuses. `message` are its words, `details` is the whole answer. */
export class ApiError extends DisbatchError {
  constructor(
    readonly status: number,
    override readonly code: string,
    message: string,
    readonly details: Record<string, Json>,
    readonly retryAfter: number | undefined,
    readonly request: string,
  ) {
    super(message);
  }
}

/** 400: a parameter is wrong. */
export class BadRequest extends ApiError {}
/** 401: it is not known who asks. */
export class Unauthorized extends ApiError {}
/** 403: who asks may not do this. */
export class Forbidden extends ApiError {}
/** What is asked for does not exist: 404, or 400 where a queue is changed that does not exist. */
export class NotFound extends ApiError {}
/** 409: it cannot be done as things stand. Also 400 where a queue of this name exists already. */
export class Conflict extends ApiError {}
/** 429: wait for `retryAfter` seconds. */
export class TooManyRequests extends ApiError {}
/** 429: the tenant would have more than it may; `details.limit` says of what. */
export class QuotaExceeded extends TooManyRequests {}
/** 500 and above. */
export class ServerError extends ApiError {}
/** 503: the database is away, or the server has too much to do. */
export class Unavailable extends ServerError {}
/** 503: no such tasks are taken at the moment; `details.rule` says of whom. */
export class Rejected extends Unavailable {}

const KINDS: Record<number, [string, typeof ApiError]> = {
  400: ["bad_request", BadRequest],
  401: ["unauthorized", Unauthorized],
  403: ["forbidden", Forbidden],
  404: ["not_found", NotFound],
  405: ["method_not_allowed", ApiError],
  408: ["request_timeout", ApiError],
  409: ["conflict", Conflict],
  410: ["gone", ApiError],
  413: ["too_large", ApiError],
  416: ["range_not_satisfiable", ApiError],
  421: ["misdirected", ApiError],
  422: ["unprocessable", ApiError],
  429: ["too_many_requests", TooManyRequests],
  503: ["unavailable", Unavailable],
};

function kindOf(status: number, body: Record<string, Json>): [string, typeof ApiError, string?] {
  if (status === 400 && "MongoDB::DuplicateKeyError" in body) {
    return ["conflict", Conflict, "there is a queue with this name already"];
  }
  if (
    status === 400 &&
    (body["MongoDB::UpdateResult"]?.matched_count === 0 || body["MongoDB::DeleteResult"]?.deleted_count === 0)
  ) {
    return ["not_found", NotFound];
  }
  if (status === 429 && "limit" in body) return ["quota_exceeded", QuotaExceeded];
  if (status === 503 && "rule" in body) return ["rejected", Rejected];
  return KINDS[status] ?? (status >= 500 ? ["server_error", ServerError] : ["error", ApiError]);
}

/** The error that an answer stands for. */
export function apiError(status: number, body: Json, retryAfter: number | undefined, request: string): ApiError {
  const details: Record<string, Json> = body !== null && typeof body === "object" && !Array.isArray(body) ? body : {};
  const [code, Kind, words] = kindOf(status, details);
  const message = words ?? (typeof details.error === "string" ? details.error : `the answer has status ${status}`);
  return new Kind(status, typeof details.code === "string" ? details.code : code, message, details, retryAfter, request);
}
