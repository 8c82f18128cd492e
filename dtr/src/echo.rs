//! Shows a person who runs `dtr` by hand what came out, as Disbatch's runner does.

use std::io::Write;

use tokio::io::AsyncReadExt;

use crate::capture::Capture;
use crate::outcome::Outcome;

/// Longer output is cut here; all of it is in the database.
const SHOWN: u64 = 64 * 1024;

/// Writes both streams to standard error.
pub async fn echo(outcome: &Outcome) {
    for (name, stream) in [("STDOUT", &outcome.stdout), ("STDERR", &outcome.stderr)] {
        let text = beginning(stream).await.unwrap_or_else(|error| format!("cannot be shown: {error}"));
        let _nobody_reads = writeln!(std::io::stderr(), "{name}: {text}");
    }
}

async fn beginning(stream: &Capture) -> std::io::Result<String> {
    if stream.is_empty() {
        return Ok("null".to_owned());
    }
    let mut bytes = Vec::new();
    stream.reader()?.take(SHOWN).read_to_end(&mut bytes).await?;
    let text = String::from_utf8_lossy(&bytes);
    let more = stream.len().saturating_sub(SHOWN);
    let rest = if more > 0 { format!("\n[{more} more bytes]") } else { String::new() };
    Ok(format!("{}{rest}", text.trim_end_matches('\n')))
}
