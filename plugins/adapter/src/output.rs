//! The streams of this process, as those of what an adapter runs.

use std::io;
use std::os::fd::AsFd;

use tokio::fs::File;
use tokio::io::AsyncWriteExt;

/// A stream without the buffer that the standard library has for it: who looks on sees what is there at once. Where nobody reads it any
/// more, what is written is lost: what the adapter runs goes on, as it may do more than to write.
#[derive(Debug)]
pub struct Output(Option<File>);

impl Output {
    pub fn to(stream: impl AsFd) -> io::Result<Self> {
        Ok(Self(Some(File::from_std(stream.as_fd().try_clone_to_owned()?.into()))))
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        if let Some(file) = &mut self.0
            && file.write_all(bytes).await.is_err()
        {
            self.0 = None;
        }
    }

    pub async fn flush(&mut self) {
        if let Some(file) = &mut self.0 {
            let _nobody_reads = file.flush().await;
        }
    }
}
