// What is put into the inbox: as the contract says, and once.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { BSON, Double, Int32, Long, MongoClient, ObjectId } from "mongodb";
import { WaitTimeout } from "../dist/index.js";
import { problem } from "../dist/contract.js";
import { enqueue, enqueueMany } from "../dist/inbox.js";
import { camel } from "../dist/json.js";
import { startDev } from "../dist/testing.js";

const contract = new URL("../../../contract/inbox.vectors.json", import.meta.url);
const { vectors } = JSON.parse(readFileSync(contract, "utf8"));
const folder = mkdtempSync(join(tmpdir(), "disbatch-inbox-"));
let dev, client, inbox, shop;

before(async () => {
  dev = await startDev();
  await dev.queue("inbox", "Disbatch::Plugin::Shell");
  client = await MongoClient.connect(dev.mongodb);
  inbox = client.db();
  // The application's, which has an inbox that nobody looks at.
  shop = client.db("shop");
});
afterEach(() => shop.dropDatabase());
after(async () => {
  await client?.close();
  await dev?.stop();
  rmSync(folder, { recursive: true });
});

/** What of a document says something; its id is another one each time. */
function given({ _id, options, ...document }) {
  const present = (fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined));
  const some = present(options ?? {});
  return present({ ...document, options: Object.keys(some).length > 0 ? some : null });
}

test("the contract is kept", async (t) => {
  for (const vector of vectors) {
    await t.test(vector.name, async () => {
      const document = BSON.EJSON.deserialize({ _id: { $oid: new ObjectId().toHexString() }, ...vector.document });
      assert.equal(problem(document) === undefined, vector.valid, problem(document));
      // What the arguments can say.
      const { _id, v, queue, params, options, key, by, trace, ...more } = document;
      if (v !== 1 || !queue || !params || Object.keys(more).length > 0 || Array.isArray(options)) return assert.ok(!vector.valid);
      const camels = Object.fromEntries(Object.entries(options ?? {}).map(([name, value]) => [camel(name), value]));
      const done = enqueue(shop.collection("inbox"), queue, params, { ...camels, key, by, traceparent: trace });
      if (!vector.valid) {
        await assert.rejects(done, TypeError);
        return assert.equal(await shop.collection("inbox").countDocuments(), 0);
      }
      const id = await done;
      const [stored, ...others] = await shop.collection("inbox").find().toArray();
      assert.deepEqual([given(stored), stored._id.toHexString(), others], [given(document), id, []]);
      await shop.dropDatabase();
    });
  }
});

test("what is wrong is named before anything is inserted", async () => {
  const wrong = [
    [{ secureParams: { pin: 1 } }, /^secureParams: secure parameters are not taken by the inbox, where others could read them/],
    [{ array: "0-9" }, /^array: arrays are not taken by the inbox/],
    [{ tenant: "acme" }, /^tenant: the tenant follows from the configuration/],
    [{ idempotencyKey: "k" }, /^idempotencyKey: is the field 'key' of the document/],
    [{ maxAttemps: 3 }, /^maxAttemps is unknown; known are runAt, delay, .*maxAttempts/],
    [{ toString: 3 }, /^toString is unknown/],
    [{ timeout: -1 }, /^timeout must be seconds from 0 to 315360000/],
    [{ delay: NaN }, /^delay must be seconds from 0 to 315360000/],
    [{ priority: true }, /^priority must be an integer from -1000 to 1000/],
    [{ priority: 1001n }, /^priority must be an integer from -1000 to 1000/],
    [{ maxAttempts: 1.5 }, /^maxAttempts must be an integer from 1 to 1000000/],
    [{ after: [] }, /^after must be 1 to 1000 ids of tasks/],
    [{ afterWhen: "never" }, /^afterWhen must be succeeded, finished or any/],
    [{ key: "k".repeat(201) }, /^key must be text of 1 to 200 characters/],
    [{ queue: "" }, /^queue must be the name or the id of a queue/],
    [{ queue: new Date() }, /^queue must be the name or the id of a queue/],
    [{ params: [1] }, /^params must be an object/],
    [{ params: new ObjectId() }, /^params must be an object/],
    [{ params: new Date() }, /^params must be an object/],
    [{ params: null }, /^params must be an object/],
  ];
  for (const [{ queue = "q", params = { a: 1 }, ...options }, message] of wrong) {
    await assert.rejects(enqueue(shop, queue, params, options), (error) => error instanceof TypeError && message.test(error.message), `${message}`);
    await assert.rejects(enqueueMany(shop, queue, [{ a: 1 }, params], options), { name: "TypeError" });
  }
  await assert.rejects(enqueue(shop.collection("orders"), "q", { a: 1 }), /the inbox is the collection inbox, and not orders/);
  for (const none of [client, "inbox", undefined]) await assert.rejects(enqueue(none, "q", { a: 1 }), /a Db of mongodb or its collection inbox/);
  assert.deepEqual(await shop.listCollections().toArray(), []);
});

test("options keep their types", async () => {
  const [at, queue] = [new Date("2099-01-01T00:00:00Z"), new ObjectId()];
  const options = { deadline: at, timeout: new Double(1.5), priority: new Int32(7), maxAttempts: Long.fromNumber(3), grace: 2n, unique: undefined, group: "ü".repeat(200) };
  await enqueue(shop, queue, { at }, { ...options, traceparent: () => "00-1" });
  const { _id, ...stored } = await shop.collection("inbox").findOne();
  const kept = { deadline: at, timeout: 1.5, priority: 7, max_attempts: 3, grace: 2, group: options.group };
  assert.deepEqual(stored, { v: 1, queue, params: { at }, options: kept, trace: "00-1" });
});

test("many have keys of their own and may be a chain", async () => {
  const before = new ObjectId().toHexString();
  const ids = await enqueueMany(shop, "q", new Set([{ n: 0 }, { n: 1 }, { n: 2 }]), { key: "k", chain: true, after: [before], group: "g" });
  const stored = await shop.collection("inbox").find().toArray();
  assert.deepEqual(stored.map(({ _id, params, key }) => [_id.toHexString(), params.n, key]), [[ids[0], 0, "k"], [ids[1], 1, "k/1"], [ids[2], 2, "k/2"]]);
  assert.deepEqual(stored.map(({ options }) => options), [before, stored[0]._id, stored[1]._id].map((link) => ({ after: [link], group: "g" })));
  assert.deepEqual(await enqueueMany(shop, "q", []), []);
});

/** Parameters of tasks that leave their ids in a file each time that they run, and a function that has these. */
function noting(name) {
  const path = join(folder, name);
  return [{ command: `echo $DISBATCH_TASK_ID >> ${path}` }, () => readFileSync(path, "utf8").trim().split("\n").sort()];
}

const stepDown = () => client.db("admin").command({ replSetStepDown: 1, force: true });

test("what is committed runs once and what is aborted never", async () => {
  const [params, runs] = noting("committed");
  const orders = shop.collection("orders");
  const ids = await client.withSession((session) =>
    session.withTransaction(async () => {
      const id = await enqueue(inbox, "inbox", params, { session });
      const more = await enqueueMany(inbox, "inbox", Array(20).fill(params), { after: [id], session });
      await orders.insertOne({ tasks: [id, ...more] }, { session });
      return [id, ...more];
    }),
  );
  const aborted = [];
  await client.withSession(async (session) => {
    session.startTransaction();
    aborted.push(await enqueue(inbox, "inbox", params, { session }), ...(await enqueueMany(inbox, "inbox", [params, params], { session })));
    await session.abortTransaction();
  });
  const alone = await enqueue(inbox.collection("inbox"), "inbox", params);
  for (const id of [...ids, alone]) assert.equal((await dev.client.wait(id, { timeout: 60 })).word, "succeeded");
  assert.deepEqual(runs(), [...ids, alone].sort());
  assert.equal(await inbox.collection("tasks").countDocuments({ _id: { $in: aborted.map((id) => new ObjectId(id)) } }), 0);
  assert.deepEqual((await orders.findOne()).tasks, ids);
});

test("a transaction that is tried again submits once", async () => {
  const [params, runs] = noting("conflict");
  const orders = shop.collection("orders");
  await orders.insertOne({ _id: "stock", left: 3 });
  const tried = [];
  const id = await client.withSession((session) =>
    session.withTransaction(async () => {
      const own = await enqueue(inbox, "inbox", params, { session });
      tried.push(own);
      // Somebody else is faster: what follows conflicts with it.
      if (tried.length === 1) await orders.updateOne({ _id: "stock" }, { $inc: { left: -1 } });
      await orders.updateOne({ _id: "stock" }, { $inc: { left: -1 }, $push: { tasks: own } }, { session });
      return own;
    }),
  );
  assert.equal(tried.length, 2);
  assert.deepEqual(await orders.findOne(), { _id: "stock", left: 1, tasks: [id] });
  assert.equal(await dev.client.result(id, { timeout: 60 }), null);
  assert.deepEqual(runs(), [id]);
  assert.equal(await inbox.collection("tasks").countDocuments({ _id: new ObjectId(tried[0]) }), 0);
});

test("a primary that steps down leaves one task", async () => {
  const [params, runs] = noting("failover");
  const orders = shop.collection("orders");
  await orders.insertOne({});
  const tried = [];
  const enqueued = [];
  // The set has one member, which is elected again.
  const id = await client.withSession((session) =>
    session.withTransaction(async () => {
      const number = tried.push("once");
      await orders.insertOne({ number }, { session });
      if (number === 1) await stepDown();
      // With the error of the driver, which says that it may be tried again.
      const own = await enqueue(inbox, "inbox", params, { session });
      enqueued.push(own);
      if (number === 2) await stepDown();
      return own;
    }),
  );
  assert.deepEqual([tried.length, enqueued.length, enqueued[1]], [3, 2, id]);
  assert.deepEqual(await orders.distinct("number"), [3]);
  assert.equal(await dev.client.result(id, { timeout: 60 }), null);
  assert.deepEqual(runs(), [id]);
});

test("a task is seen before it is moved", async () => {
  // Of a version that no DEN knows, so that it stays, and so does what comes after it.
  const { insertedId } = await inbox.collection("inbox").insertOne({ v: 2, queue: "inbox", params: { command: "true" } });
  const id = await enqueue(inbox, "inbox", { command: "true" }, { after: [insertedId.toHexString()] });
  const task = await dev.client.get(id);
  assert.deepEqual([task.id, task.word, task.inbox], [id, "queued", true]);
  await assert.rejects(dev.client.wait(id, { timeout: 0 }), WaitTimeout);
});
