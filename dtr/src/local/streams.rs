//! The output of a plugin while it runs, handed on as it comes.

use std::io;
use std::sync::Arc;

use disbatch_core::output::StreamName;
use tokio::io::{AsyncReadExt, copy, sink};
use tokio::sync::Notify;

use super::Word;
use crate::capture::{Capture, Captures};
use crate::live::Tap;
use crate::outcome::Outcome;

/// Output is handed on in pieces of so many bytes at most.
const PIECE: usize = 64 * 1024;

/// What is handed on of the task's output.
pub struct Streams {
    /// Something has come.
    pub news: Arc<Notify>,
    /// Each with how much of it was handed on.
    taps: [(StreamName, Tap, u64); 2],
}

impl Streams {
    /// None yet, and where they are captured.
    pub fn new() -> (Self, Captures) {
        let news = Arc::new(Notify::new());
        let (out, err) = (Tap::new(Arc::clone(&news)), Tap::new(Arc::clone(&news)));
        let Captures { stdout, stderr } = Captures::new(None, None);
        let captures = Captures { stdout: stdout.tapped(out.clone()), stderr: stderr.tapped(err.clone()) };
        (Self { news, taps: [(StreamName::Stdout, out, 0), (StreamName::Stderr, err, 0)] }, captures)
    }

    /// Hands on what has come.
    pub fn hand_on(&mut self, say: &mut impl FnMut(Word)) {
        for (name, tap, shown) in &mut self.taps {
            let Some(piece) = tap.peek() else { continue };
            if piece.offset > *shown {
                say(Word::LeftOut(*name, piece.offset - *shown));
            }
            *shown = piece.end();
            tap.forget_before(*shown);
            say(Word::Output(*name, piece.bytes));
        }
    }

    /// Hands on what comes with the end: why a plugin was not begun with, which no tap has seen.
    pub async fn hand_on_the_rest(&self, outcome: &Outcome, say: &mut impl FnMut(Word)) -> io::Result<()> {
        for ((name, _, shown), stream) in self.taps.iter().zip([&outcome.stdout, &outcome.stderr]) {
            hand_on_from(*name, stream, *shown, say).await?;
        }
        Ok(())
    }
}

async fn hand_on_from(
    name: StreamName,
    stream: &Capture,
    shown: u64,
    say: &mut impl FnMut(Word),
) -> io::Result<()> {
    if stream.len() <= shown {
        return Ok(());
    }
    let mut reader = stream.reader()?;
    copy(&mut (&mut reader).take(shown), &mut sink()).await?;
    let mut piece = vec![0; PIECE];
    loop {
        let read = reader.read(&mut piece).await?;
        if read == 0 {
            return Ok(());
        }
        say(Word::Output(name, piece[..read].to_vec()));
    }
}
