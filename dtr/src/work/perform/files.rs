//! Files before the first plugin and after the last.

use disbatch_core::model::Status;

use super::Stage;
use crate::capture::Captures;
use crate::files;
use crate::outcome::Verdict;
use crate::relay::Relay;
use crate::supervision::Reason;

impl Stage<'_> {
    /// Brings the files that the task is to have. If that cannot be, it is what came of the task.
    pub(super) async fn bring_files(
        &mut self,
        captures: &mut Captures,
        relay: &Relay,
    ) -> Result<(), Box<Verdict>> {
        let Some(exchange) = &self.files else { return Ok(()) };
        let bring = Box::pin(exchange.bring(relay));
        let brought = files::unless_ended(bring, &mut self.supervision, &self.work.setup.lifecycle).await;
        let verdict = match brought {
            // The first plugin may live for as long as the lease was renewed for meanwhile.
            Ok(Ok(())) => match self.must_end() {
                None => return Ok(()),
                Some(reason) => Verdict::ordered(reason),
            },
            Ok(Err(trouble)) => {
                let why = format!("cannot bring the input files: {trouble}");
                captures.stderr.note(&format!("disbatch: {why}\n"));
                Verdict::unable_to_start(why)
            }
            Err(reason) => Verdict::ordered(reason),
        };
        Err(Box::new(in_its_place(verdict)))
    }

    /// Stores the files that the task leaves, if it has succeeded. It has not if they cannot be stored.
    pub(super) async fn leave_files<E>(
        &mut self,
        verdict: Result<Verdict, E>,
        captures: &mut Captures,
        relay: &Relay,
    ) -> Result<Verdict, E> {
        let verdict = verdict?;
        let Some(exchange) = &self.files else { return Ok(verdict) };
        let mut verdict = in_its_place(verdict);
        if verdict.status != Status::Succeeded || verdict.detached {
            return Ok(verdict);
        }
        let leave = Box::pin(exchange.leave(relay));
        match files::unless_ended(leave, &mut self.supervision, &self.work.setup.lifecycle).await {
            Ok(Ok(notes)) => notes.iter().for_each(|line| captures.stderr.note(line)),
            Ok(Err(trouble)) => {
                let why = format!("cannot store the output files: {trouble}");
                tracing::error!("{why}");
                captures.stderr.note(&format!("disbatch: {why}\n"));
                exchange.give_up().await;
                verdict.status = Status::Failed;
                verdict.note = Some(why);
            }
            Err(reason) => {
                captures.stderr.note("disbatch: the output files were not all stored yet\n");
                // Who has taken the task away takes back what it has made, too.
                if reason != Reason::LeaseLost {
                    exchange.give_up().await;
                }
                verdict = in_its_place(Verdict::ordered(reason).after(Some(verdict)));
            }
        }
        Ok(verdict)
    }
}

/// The private folder stays this task's: something may still be on its way to it.
fn in_its_place(mut verdict: Verdict) -> Verdict {
    verdict.has_left = false;
    verdict
}
