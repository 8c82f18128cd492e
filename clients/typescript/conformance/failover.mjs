// Submits a task with an order: see clients/conformance/failover.py.
import { once } from "node:events";
import { MongoClient, MongoNetworkError } from "mongodb";
import { enqueue } from "../dist/inbox.js";

const { MONGODB_URL, QUEUE, COMMAND, ORDERS } = process.env;
const client = await MongoClient.connect(MONGODB_URL);
const orders = client.db("shop").collection(ORDERS);
let tried = 0;

const order = () =>
  client.withSession((session) =>
    session.withTransaction(async () => {
      const task = await enqueue(client.db(), QUEUE, { command: COMMAND }, { session });
      await orders.insertOne({ _id: "order", task }, { session });
      if (++tried === 1) {
        console.log("inserted");
        await once(process.stdin, "data");
      }
      return task;
    }),
  );

/** As an application that is told by this driver that there is no connection, which need not mean that nothing is committed. */
async function ordered() {
  for (;;) {
    try {
      return await order();
    } catch (error) {
      if (error.code === 11000) return (await orders.findOne({ _id: "order" })).task;
      // A connection that breaks off in the wrong moment gives it an error without labels, for which it then looks.
      const isConfused = error instanceof TypeError && error.message.includes("hasErrorLabel");
      if (!(error instanceof MongoNetworkError) && !isConfused) throw error;
    }
  }
}

console.log(await ordered());
await client.close();
process.stdin.destroy();
