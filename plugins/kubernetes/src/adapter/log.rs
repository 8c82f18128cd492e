//! The log of a pod, as the output of this process: from its beginning, while it is written, whatever happens to the
//! connection.

mod lines;

use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::time::Duration;

use futures::AsyncReadExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, Error};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch::Receiver;
use tokio::time::{sleep, timeout};

use super::cluster::{Pauses, describe, in_time, is_passing};
use lines::Lines;

/// So much is read at once.
const READ_SIZE: usize = 64 * 1024;

/// A log that is silent for so long is asked for again: the connection may be dead.
const SILENCE: Duration = Duration::from_secs(300);

/// The log of a container that has ended comes to its end by itself, and soon.
const LAST: Duration = Duration::from_secs(5);

/// How long it takes at least until a log is asked for again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How often the end of a log is asked for.
const TRIES: u32 = 10;

/// What is heard of the container meanwhile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Heard {
    /// Its pod, if there is one.
    pub pod: Option<String>,
    pub has_begun: bool,
    /// Whether it has ended, or never will begin.
    pub is_over: bool,
}

/// Where a log is copied from, and how far that is.
struct Copying<'a> {
    pods: &'a Api<Pod>,
    container: &'a str,
    heard: Receiver<Heard>,
    lines: Lines,
    /// Whether something has come since the last time that nothing could be read.
    has_read: bool,
    /// `None`: nobody reads it.
    target: Option<File>,
}

/// How a reading ended.
#[derive(Debug, PartialEq)]
enum Reading {
    /// With the end of the log, as it was then.
    Whole,
    /// Before.
    BrokenOff,
}

/// Copies the log of a container to the standard output of this process until it is over. Ends at once if the container never
/// begins.
///
/// # Errors
/// Not all of it could be read.
pub async fn copy(pods: &Api<Pod>, container: &str, mut heard: Receiver<Heard>) -> Result<(), String> {
    let begun = match heard.wait_for(|heard| heard.has_begun || heard.is_over).await {
        Ok(heard) => heard.clone(),
        // Nobody follows it any more.
        Err(_) => return Ok(()),
    };
    let (Some(pod), true) = (begun.pod, begun.has_begun) else { return Ok(()) };
    let target = io::stdout().as_fd().try_clone_to_owned();
    let target = target.map_err(|error| format!("cannot pass on the output: {error}"))?;
    let target = Some(File::from_std(target.into()));
    let mut copy = Copying { pods, container, heard, lines: Lines::default(), has_read: false, target };
    let copied = copy.run(&pod).await;
    copy.flush().await;
    copied
}

impl Copying<'_> {
    async fn run(&mut self, pod: &str) -> Result<(), String> {
        let mut pauses = Pauses::default();
        let mut failures = 0;
        // Whether a log that was followed has come to its end: then nothing is missing if the pod is gone.
        let mut is_whole = false;
        loop {
            let is_over = self.heard.borrow().is_over;
            let error = match self.read(pod, is_over).await {
                Ok(Reading::Whole) if is_over => return Ok(()),
                Ok(reading) => {
                    is_whole = reading == Reading::Whole;
                    pauses.reset();
                    self.wait().await;
                    continue;
                }
                Err(error) => error,
            };
            if std::mem::take(&mut self.has_read) {
                pauses.reset();
            }
            if is_over {
                failures += 1;
                if matches!(&error, Error::Api(status) if status.is_not_found()) && is_whole {
                    return Ok(());
                }
                if failures == TRIES || !is_passing(&error) {
                    return Err(format!("the output is not complete: {}", describe(&error)));
                }
            }
            pauses.pause().await;
        }
    }

    /// Waits until it is over, but not for long.
    async fn wait(&mut self) {
        let over = self.heard.wait_for(|heard| heard.is_over);
        drop(timeout(LOOK_AGAIN, over).await);
    }

    /// Reads the log, from where it broke off.
    async fn read(&mut self, pod: &str, is_over: bool) -> Result<Reading, Error> {
        let params = LogParams {
            container: Some(self.container.to_owned()),
            follow: !is_over,
            timestamps: true,
            since_time: self.lines.since(),
            ..LogParams::default()
        };
        let mut log = pin!(in_time(self.pods.log_stream(pod, &params)).await?);
        self.lines.again();
        let (mut buffer, mut text) = (vec![0; READ_SIZE], Vec::new());
        loop {
            let read = tokio::select! {
                read = log.read(&mut buffer) => read,
                () = no_more(&mut self.heard, is_over) => return Ok(Reading::BrokenOff),
            };
            match read {
                Ok(0) => return Ok(Reading::Whole),
                Ok(read) => {
                    self.has_read = true;
                    self.lines.take(&buffer[..read], &mut text);
                }
                Err(error) => return Err(Error::ReadEvents(error)),
            }
            self.write(&text).await;
            text.clear();
        }
    }

    async fn write(&mut self, text: &[u8]) {
        if let Some(target) = &mut self.target
            && target.write_all(text).await.is_err()
        {
            // The pod goes on; it may do more than to write.
            self.target = None;
        }
    }

    async fn flush(&mut self) {
        if let Some(target) = &mut self.target {
            let _nobody_reads = target.flush().await;
        }
    }
}

/// Waits until there is no use in waiting for more of a log that is followed.
async fn no_more(heard: &mut Receiver<Heard>, is_over: bool) {
    if is_over {
        return sleep(SILENCE).await;
    }
    let over = async {
        drop(heard.wait_for(|heard| heard.is_over).await);
        sleep(LAST).await;
    };
    // It is over, or nobody knows.
    let _silent = timeout(SILENCE, over).await;
}
