//! What is said to people.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};

/// Says something on standard error, as a line that is not of what the plugin runs.
pub fn note(what: &dyn Display) {
    // Nobody is left to tell when standard error is closed.
    let _nobody_reads = writeln!(io::stderr(), "disbatch: {what}");
}

/// An error with its causes, in one line.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Some errors say what their cause says.
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_that_an_error_has_said_are_not_said_again() {
        let odd = io::Error::other("odd");
        let text = |error: io::Error| with_causes(&io::Error::other(error));
        assert_eq!(text(odd), "odd");
        let number = "x".parse::<u8>().unwrap_err();
        assert_eq!(with_causes(&number), "invalid digit found in string");
    }
}
