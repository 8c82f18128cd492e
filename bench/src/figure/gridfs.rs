//! `gridfs`: how fast very much output of one task is stored.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::model::{QueueId, TaskId, whole_number};
use disbatch_core::output::CHUNK_SIZE;
use disbatch_core::task::TaskOptions;
use futures::{AsyncWriteExt, FutureExt};
use md5::{Digest, Md5};
use mongodb::options::{Acknowledgment, GridFsBucketOptions, WriteConcern};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt as _, BufWriter};
use tokio::time::{Instant, interval};

use crate::compare::{Finding, Goal, ratio};
use crate::figure::{Figure, Rounds, Turn};
use crate::results::{Results, Sample, Series};
use crate::world::node::Node;
use crate::world::plugins::{WRITES, text_file};

const NAME: &str = "gridfs";

const METHOD: &str = "a task of /bin/cat, which writes a file of 256 MiB of text, on an idle node that has run one such \
    task of 32 MiB: from just before the call that submits until the task is stored as done, which is looked for every \
    5 ms. The same file by the driver's own GridFS (open_upload_stream, a majority, chunks of the same size) \
    to the same server, from opening the file to the end of the upload. They take turns. Length and MD5 of what \
    the task has stored are those of the file";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::Every,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

const MIB: usize = 1024 * 1024;
const SIZE_MIB: u32 = 256;

/// Too much for a document.
const SMALL_MIB: usize = 32;
const LOOK_EVERY: Duration = Duration::from_millis(5);
const DEADLINE: Duration = Duration::from_secs(300);

static TASK: Series = Series::fixed(NAME, "task_mib_per_second", "output of a task, MiB/s");
static DRIVER: Series = Series::fixed(NAME, "driver_mib_per_second", "the driver's own upload, MiB/s");

/// A file and what is in it.
struct Text {
    length: i64,
    md5: String,
}

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    turn.begin(&format!("{NAME}: {SIZE_MIB} MiB"));
    let path = text_file(&turn.world.folder);
    let node = turn.world.node(NAME).await?;
    let samples = node.finish(async |node| by_turns(turn, node, &path).await).await;
    tokio::fs::remove_file(&path).await.context("the text is gone")?;
    let samples = samples?;
    turn.end(&samples);
    Ok(samples)
}

async fn by_turns(turn: Turn<'_>, node: &mut Node, path: &Path) -> anyhow::Result<Vec<Sample>> {
    let queue = node.create_queue(WRITES, 1).await?;
    // Everything is connected, and there are indexes, before it counts.
    let small = write_text(path, SMALL_MIB).await?;
    output_of_a_task(node, queue, &small).await?;
    upload(node, path).await?;
    let text = write_text(path, usize::try_from(SIZE_MIB)?).await?;
    let mut samples = Vec::new();
    for step in 0..2 {
        let (series, seconds) = match (step + turn.round) % 2 {
            0 => (&TASK, output_of_a_task(node, queue, &text).await?),
            _ => (&DRIVER, upload(node, path).await?),
        };
        samples.push(series.sample(f64::from(SIZE_MIB) / seconds));
        // What the one has left to be written is not to be paid by the other.
        node.admin().run_command(doc! { "fsync": 1 }).await?;
    }
    samples.sort_by_key(|sample| sample.series == DRIVER);
    Ok(samples)
}

/// Lines of text, none of them like another.
async fn write_text(path: &Path, mib: usize) -> anyhow::Result<Text> {
    let mut file = BufWriter::with_capacity(MIB, File::create(path).await?);
    let mut digest = Md5::new();
    let mut left = mib * MIB;
    let mut number: u64 = 0;
    while left > 0 {
        let noise = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut line = format!("{number:012} {noise:016x} a line of output, as programs write them\n");
        line.truncate(left);
        digest.update(line.as_bytes());
        file.write_all(line.as_bytes()).await?;
        left -= line.len();
        number += 1;
    }
    file.flush().await?;
    let md5 = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Text { length: i64::try_from(mib * MIB)?, md5 })
}

/// The seconds that a task takes which writes the text, and whose output is checked.
async fn output_of_a_task(node: &mut Node, queue: QueueId, text: &Text) -> anyhow::Result<f64> {
    let tasks = node.database.collection::<Document>("tasks");
    let began = Instant::now();
    let submitted = node.store.submit_tasks(queue, vec![Document::new()], &TaskOptions::default()).await?;
    let task = *submitted.ids.first().context("there is no task")?;
    let mut look = interval(LOOK_EVERY);
    let ended = doc! { "_id": task, "status": { "$nin": [-2, -1, 0] } };
    let ended = loop {
        if let Some(ended) = tasks.find_one(ended.clone()).await? {
            break ended;
        }
        node.check_alive()?;
        ensure!(began.elapsed() < DEADLINE, "the task does not end");
        look.tick().await;
    };
    let seconds = began.elapsed().as_secs_f64();
    ensure!(ended.get_i32("status")? == 1, "the task did not succeed: {ended}");
    check(node, task, ended.get_object_id("stdout").context("the output is not in GridFS")?, text).await?;
    node.store.delete_output(ended.get_object_id("stdout")?).await?;
    Ok(seconds)
}

/// Output that has not arrived whole would be fast for nothing.
async fn check(node: &Node, task: TaskId, file: ObjectId, text: &Text) -> anyhow::Result<()> {
    let files = node.database.collection::<Document>("tasks.files");
    let found = files.find_one(doc! { "_id": file, "metadata.task_id": task }).await?;
    let found = found.context("the output's file is missing")?;
    let length = found.get("length").and_then(whole_number);
    ensure!(length == Some(text.length), "{length:?} of {} bytes have arrived", text.length);
    ensure!(found.get_str("md5")? == text.md5, "the output has changed on its way");
    let chunks = node.database.collection::<Document>("tasks.chunks");
    let count = chunks.count_documents(doc! { "files_id": file }).await?;
    let expected = u64::try_from(text.length)?.div_ceil(u64::try_from(CHUNK_SIZE)?);
    ensure!(count == expected, "{count} of {expected} chunks are there");
    Ok(())
}

/// The seconds that the driver takes for the same.
async fn upload(node: &Node, path: &Path) -> anyhow::Result<f64> {
    let options = GridFsBucketOptions::builder()
        .bucket_name("driver".to_owned())
        .chunk_size_bytes(u32::try_from(CHUNK_SIZE)?)
        .write_concern(WriteConcern::builder().w(Acknowledgment::Majority).build())
        .build();
    let bucket = node.database.gridfs_bucket(options);
    let began = Instant::now();
    let mut file = File::open(path).await?;
    let mut stream = bucket.open_upload_stream("text").await?;
    let mut buffer = vec![0; MIB];
    loop {
        let read = file.read(&mut buffer).await?;
        if read == 0 {
            break;
        }
        stream.write_all(buffer.get(..read).unwrap_or_default()).await?;
    }
    stream.close().await?;
    let seconds = began.elapsed().as_secs_f64();
    bucket.drop().await?;
    Ok(seconds)
}

fn findings(results: &Results) -> Vec<Finding> {
    let share = ratio(results, &TASK, &DRIVER);
    vec![
        Finding::new("over_driver", "output of a task / the driver's own upload", share)
            .with(Goal::AtLeast(0.7)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_text_is_as_long_as_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        let text = write_text(&path, 1).await.unwrap();
        let written = std::fs::read(&path).unwrap();
        assert_eq!(i64::try_from(written.len()).unwrap(), text.length);
        let md5: String = Md5::digest(&written).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(md5, text.md5);
    }
}
