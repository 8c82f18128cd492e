// Agenda on MongoDB, which it is told of new jobs by a change stream: far faster than its own polling every 5 s.
import { MongoClient } from 'mongodb';
import { Agenda } from 'agenda';
import { MongoBackend, MongoChangeStreamNotificationChannel } from '@agendajs/mongo-backend';
import { drain, latency, main, started } from './measure.mjs';

const client = await MongoClient.connect(process.env.BENCH_ADDRESS);
const db = client.db();
let agenda;

async function start(width) {
    await db.dropDatabase();
    await db.createCollection('agendaJobs');
    agenda = new Agenda({
        backend: new MongoBackend({ mongo: db }),
        notificationChannel: new MongoChangeStreamNotificationChannel({ db }),
        // The shortest that its documentation shows; it fills free places between two looks from what it has locked.
        processEvery: '1 second',
        maxConcurrency: width,
        defaultConcurrency: width,
    });
    agenda.on('error', (error) => console.error(error));
    agenda.define('nothing', async () => {});
    agenda.define('started', async () => started());
    await agenda.ready;
}

await main({
    async drain(jobs, width) {
        await start(width);
        let finished = 0;
        agenda.on('success', () => (finished += 1));
        const prepare = async (count) => {
            await agenda.stop();
            await Promise.all(Array.from({ length: count }, () => agenda.now('nothing', {})));
        };
        await drain({ prepare, release: () => agenda.start(), count: () => finished }, jobs, width);
        const stored = await db.collection('agendaJobs').countDocuments({ lastFinishedAt: { $exists: true } });
        if (stored < jobs) throw new Error(`${stored} of ${jobs} jobs are stored as finished`);
    },
    async latency(samples) {
        await start(8);
        await agenda.start();
        await latency(() => agenda.now('started', {}), samples);
    },
    async close() {
        await agenda?.stop();
        await client.close();
    },
});
