// What the scripts for Node share: the command line, the named pipe, and the drain.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';

export const pipePath = path.join(process.env.BENCH_FOLDER ?? '/nowhere', 'starts');
const DEADLINE = 300_000;

/** CLOCK_REALTIME in milliseconds, with its fractions. */
export const now = () => performance.timeOrigin + performance.now();

/** Called by a job first of all: says when it began. */
export function started() {
    fs.writeFileSync(pipePath, `${now()}\n`);
}

/** Waits until `count()` has come to `jobs`. */
async function until(count, jobs) {
    const deadline = performance.now() + DEADLINE;
    for (let done; (done = await count()) < jobs; await sleep(10)) {
        if (performance.now() > deadline) throw new Error(`${done} of ${jobs} jobs are done, and no more`);
    }
}

/** Warms up with twice `width` jobs, then times `jobs` of them. */
export async function drain({ prepare, release, count }, jobs, width) {
    const warm = width * 2;
    await prepare(warm);
    await release();
    await until(count, warm);
    await prepare(jobs);
    await sleep(1000);
    const begun = performance.now();
    await release();
    await until(count, warm + jobs);
    console.log(JSON.stringify({ seconds: (performance.now() - begun) / 1000 }));
}

/** One job at a time; the first one is not counted, since it makes connections. */
export async function latency(submit, samples) {
    execFileSync('mkfifo', [pipePath]);
    // Open for both, so that the end of one job is not the end of the file. A file stream would block a thread.
    const fd = fs.openSync(pipePath, fs.constants.O_RDWR | fs.constants.O_NONBLOCK);
    const lines = new net.Socket({ fd, writable: false })[Symbol.asyncIterator]();
    const waited = [];
    for (let sample = 0; sample <= samples; sample++) {
        await sleep(200 + ((sample * 37) % 100));
        const begun = now();
        await submit();
        waited.push(Number((await lines.next()).value.toString()) - begun);
    }
    console.log(JSON.stringify({ milliseconds: waited.slice(1) }));
}

/** Runs what the command line says, then ends the process with all its connections. */
export async function main(ways) {
    const [command, number, width] = process.argv.slice(2);
    try {
        await ways[command](Number(number), Number(width));
        process.exitCode = 0;
    } catch (error) {
        console.error(error);
        process.exitCode = 1;
    }
    await ways.close();
    process.exit();
}
