use std::io::Write;
use std::path::Path;

use disbatch_core::config::Config;
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::{NodeName, QueueId};
use tokio::io::AsyncReadExt;

use super::*;

const MIB: usize = 1024 * 1024;

fn text(length: u64) -> Shape {
    Shape { length, binary: false }
}

fn growing(so_far: Shape) -> (File, watch::Sender<Growth>, watch::Receiver<Growth>) {
    let (growth, grown) = watch::channel(Growth { so_far, complete: false });
    (tempfile::tempfile().unwrap(), growth, grown)
}

#[tokio::test]
async fn a_file_is_followed_to_its_end_while_it_grows() {
    let (mut file, growth, grown) = growing(text(0));
    let reader = file.try_clone().unwrap();
    let mut followed = follow(Arc::new(reader), grown, Encoding::Text);
    let stream: Vec<u8> = (b'a'..=b'z').cycle().take(5 * MIB + 17).collect();
    let write = async {
        let mut length = 0;
        for piece in stream.chunks(700_001) {
            file.write_all(piece).unwrap();
            length += piece.len() as u64;
            growth.send_modify(|growth| growth.so_far.length = length);
            tokio::task::yield_now().await;
        }
        growth.send_modify(|growth| growth.complete = true);
    };
    let read = async {
        let mut bytes = Vec::new();
        followed.read_to_end(&mut bytes).await.map(|_| bytes)
    };
    assert!(tokio::join!(write, read).1.unwrap() == stream);
}

#[tokio::test]
async fn what_lies_behind_the_end_is_not_read() {
    let (mut file, growth, grown) = growing(text(3));
    file.write_all(b"abc and what a write left behind that failed").unwrap();
    growth.send_modify(|growth| growth.complete = true);
    let mut bytes = Vec::new();
    follow(Arc::new(file), grown, Encoding::Text).read_to_end(&mut bytes).await.unwrap();
    assert_eq!(bytes, b"abc");
}

#[tokio::test]
async fn a_stream_that_turns_out_to_be_no_text_is_not_read_on_as_text() {
    let (file, growth, grown) = growing(text(0));
    let mut followed = follow(Arc::new(file), grown.clone(), Encoding::Text);
    growth.send_modify(|growth| growth.so_far.binary = true);
    let error = followed.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert_eq!(grown.borrow().so_far.encoding(), Encoding::Binary);
}

#[tokio::test]
async fn a_stream_that_nobody_tells_about_any_more_fails() {
    let (file, growth, grown) = growing(text(3));
    let mut followed = follow(Arc::new(file), grown, Encoding::Text);
    drop(growth);
    assert!(followed.read_u8().await.is_err());
}

/// Early uploads to a database that nobody answers for.
fn unreachable(gfs: Gfs) -> Early {
    let text = r#"{ "database": "x", "mongohost":
        "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=10&connectTimeoutMS=10" }"#;
    let config = Config::parse(text, Path::new("/config.json")).unwrap();
    let (task, queue) = (ObjectId::new().into(), QueueId(ObjectId::new()));
    let run = Run { task, queue, node: NodeName::new("n"), attempt: 1, instance: None };
    Early::new(
        &Ledger::new(Arc::new(config), Lifecycle::default(), None, crate::ledger::Connection::default()),
        &run,
        gfs,
    )
}

#[tokio::test]
async fn an_upload_begins_when_it_is_certain_to_be_needed() {
    let file = tempfile::tempfile().unwrap();
    let limit = 15 * MIB as u64;
    let noise = |length| Shape { length, binary: true };
    let cases = [
        (Gfs::Auto, text(limit), false),
        (Gfs::Auto, text(limit + 1), true),
        (Gfs::Auto, noise(SHORTEST), true),
        (Gfs::Always, text(SHORTEST - 1), false),
        (Gfs::Always, text(SHORTEST), true),
        (Gfs::Never, text(limit * 10), false),
        (Gfs::Never, noise(SHORTEST), true),
    ];
    for (gfs, so_far, begins) in cases {
        let early = unreachable(gfs);
        let tap = early.tap(StreamName::Stdout);
        tap.grown(&file, so_far);
        assert_eq!(matches!(*lock(&tap.0.stage), Stage::Begun(_)), begins, "{gfs:?} {so_far:?}");
        drop(tap.end());
        tap.grown(&file, so_far);
        assert!(matches!(*lock(&tap.0.stage), Stage::Over), "what is over does not begin again");
        assert_eq!(tap.finish(so_far).await, None);
    }
}
