// BullMQ on Redis. BENCH_VARIANT=sandboxed runs jobs in a pool of processes that it keeps; else in this one.
import path from 'node:path';
import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { drain, latency, main, started } from './measure.mjs';

const connection = new Redis(process.env.BENCH_ADDRESS, { maxRetriesPerRequest: null });
const sandboxed = process.env.BENCH_VARIANT === 'sandboxed';
const run = async ({ name }) => {
    if (name === 'started') started();
};
const processor = sandboxed ? path.join(import.meta.dirname, 'bullmq_job.mjs') : run;

const queue = new Queue('bench', { connection });
let worker;

async function start(concurrency) {
    await queue.obliterate({ force: true });
    worker = new Worker('bench', processor, { connection, concurrency });
    worker.on('error', (error) => console.error(error));
    await worker.waitUntilReady();
}

await main({
    async drain(jobs, width) {
        await start(width);
        const prepare = async (count) => {
            await queue.pause();
            await queue.addBulk(Array.from({ length: count }, () => ({ name: 'nothing', data: {} })));
        };
        await drain({ prepare, release: () => queue.resume(), count: () => queue.getCompletedCount() }, jobs, width);
    },
    async latency(samples) {
        await start(8);
        await latency(() => queue.add('started', {}), samples);
    },
    async close() {
        // Closing in order also ends the processes of the pool.
        await worker?.close(true);
    },
});
