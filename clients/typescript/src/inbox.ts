/**
 * Submits tasks in the transaction of an application, by documents in the collection `inbox`: see docs/inbox.md.
 * Nothing else here needs `mongodb`.
 */

import { type ClientSession, type Collection, type Db, ObjectId } from "mongodb";
import { isObject, problem } from "./contract.js";
import { snake } from "./json.js";
import type { EnqueueOptions, Json } from "./types.js";

const NAME = "inbox";
const VERSION = 1;

/** What a task has besides its options. */
export interface Enqueue extends EnqueueOptions {
  /** With it, the task is submitted when its transaction is committed. */
  session?: ClientSession;
  /** An idempotency key. */
  key?: string;
  /** The producer. */
  by?: string;
  /** The trace, or a function that has it. */
  traceparent?: string | (() => string | undefined);
}

/** Puts a task into the inbox, which is the database of Disbatch or its collection `inbox`, and returns the id that it will have. */
export async function enqueue(inbox: Db | Collection<Json>, queue: string | ObjectId, params: Json, options: Enqueue = {}): Promise<string> {
  const collection = collectionOf(inbox);
  const document = documentOf(queue, params, options);
  await collection.insertOne(document, { session: options.session });
  return document._id.toHexString();
}

/**
 * Puts a task for each params into the inbox, and returns their ids in the same order. Without a transaction, some of them may be there if it
 * fails. After the first, the key of a task is that of the first with `/1`, `/2` and so on.
 */
export async function enqueueMany(inbox: Db | Collection<Json>, queue: string | ObjectId, params: Iterable<Json>, options: Enqueue = {}): Promise<string[]> {
  const collection = collectionOf(inbox);
  const { chain, key, ...rest } = options;
  const common = { ...rest, traceparent: traceOf(options) };
  const documents: Document[] = [];
  for (const one of params) {
    const last = documents.at(-1);
    const own = key && last !== undefined ? `${key}/${documents.length}` : key;
    // Each is a document by itself: what comes before it has to be named.
    documents.push(documentOf(queue, one, { ...common, key: own, ...(chain && last !== undefined && { after: [last._id] }) }));
  }
  if (documents.length > 0) await collection.insertMany(documents, { session: options.session });
  return documents.map(({ _id }) => _id.toHexString());
}

type Document = Record<string, Json> & { _id: ObjectId };

function collectionOf(given: Db | Collection<Json>): Collection<Json> {
  const collection = given && "collection" in Object(given) ? (given as Db).collection<Json>(NAME) : (given as Collection<Json>);
  if (typeof collection?.insertMany !== "function") throw new TypeError(`tasks are put into a Db of mongodb or its collection ${NAME}`);
  if (collection.collectionName !== NAME) throw new TypeError(`the inbox is the collection ${NAME}, and not ${collection.collectionName}`);
  return collection;
}

function traceOf({ traceparent }: Enqueue): string | undefined {
  return typeof traceparent === "function" ? traceparent() : traceparent;
}

function documentOf(queue: Json, params: Json, given: Omit<Enqueue, "after"> & { after?: Json }): Document {
  // A date and an id would be objects in the JSON of the contract.
  if (!isObject(params)) throw new TypeError("params must be an object");
  const { session, key, by, traceparent, ...options } = given;
  const document: Document = {
    _id: new ObjectId(),
    v: VERSION,
    queue,
    params,
    ...present({ options: present(options, snake), key, by, trace: traceOf(given) }),
  };
  const wrong = problem(document);
  if (wrong !== undefined) throw new TypeError(wrong);
  return document;
}

/** What is something, under the names that it has there; undefined if that is nothing. */
function present(fields: object, name: (key: string) => string = (key) => key): Record<string, Json> | undefined {
  const entries = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null);
  return entries.length > 0 ? Object.fromEntries(entries.map(([key, value]) => [name(key), value])) : undefined;
}
