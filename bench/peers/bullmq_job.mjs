// The job of BullMQ's sandboxed pool, read by each of its processes.
import { started } from './measure.mjs';

export default async function ({ name }) {
    if (name === 'started') started();
}
