//! What a runner asks for, done: by its DEN, or by itself where there is none.

use bson::Bson;
use disbatch_operation::operation;

use super::{Answer, Ask};
use crate::live::LiveStream;
use crate::store::{Store, StoreError, of_millis};
use crate::task::{Commit, Detached, Finish, Finished, Interim, Run, STORAGE};

impl Ask {
    pub fn interim(&self) -> Option<Interim> {
        Some(match self {
            Self::Progress(progress) => Interim::Progress(progress.clone()),
            Self::Steps { states, number } => Interim::Steps { states: states.clone(), number: *number },
            Self::Storage { saved, number } => {
                let storage = saved.get(STORAGE).cloned().unwrap_or(Bson::Null);
                Interim::Storage { storage, number: *number }
            }
            _ => return None, // The others are done one by one, or have a write of their own.
        })
    }

    pub fn finish(&self) -> Option<&Finish> {
        match self {
            Self::Finish(finish) | Self::RetryLater { finish, .. } => Some(finish),
            _ => None, // All else is about an attempt that goes on, here or at a web service.
        }
    }

    /// What is answered if it comes too late: its assignment is over.
    pub fn late_answer(&self) -> Answer {
        match self {
            Self::Renew | Self::Register { .. } | Self::KeepCommon { .. } => Answer::Lost,
            Self::Finish(_) | Self::RetryLater { .. } | Self::Detach => Answer::NotRunning,
            Self::Settle => Answer::Committed(None),
            Self::Progress(_)
            | Self::Steps { .. }
            | Self::Storage { .. }
            | Self::Live { .. }
            | Self::RemoveLive { .. }
            | Self::Upload { .. }
            | Self::LetGo => Answer::Done,
        }
    }

    /// Whether that is an answer to it, whether it comes too late or not.
    pub fn is_answered_by(&self, answer: &Answer) -> bool {
        match (self.late_answer(), answer) {
            (Answer::Lost, Answer::Held { .. }) => matches!(self, Self::Renew),
            (Answer::Lost, Answer::Done) => !matches!(self, Self::Renew),
            (Answer::NotRunning, Answer::Stored) | (Answer::Committed(_), Answer::Committed(_)) => true,
            (late, answer) => late == *answer,
        }
    }
}

impl From<Finished> for Answer {
    fn from(finished: Finished) -> Self {
        match finished {
            Finished::Stored => Self::Stored,
            Finished::NotRunning => Self::NotRunning,
        }
    }
}

impl Store {
    /// Does by itself what is asked for about `run`. Not [`Ask::Renew`], as only who asks and who is asked know how long the lease is, and
    /// not [`Ask::LetGo`], which has nothing written.
    #[operation(task = %run.task)]
    pub async fn carry_out(&self, run: &Run, ask: &Ask) -> Result<Answer, StoreError> {
        let done_or_lost = |is_done| if is_done { Answer::Done } else { Answer::Lost };
        Ok(match ask {
            Ask::Progress(_) | Ask::Steps { .. } | Ask::Storage { .. } => {
                if let Some(interim) = ask.interim() {
                    self.keep_interim(run, &interim).await?;
                }
                Answer::Done
            }
            Ask::Live { stream, offset, bytes } => {
                let of = LiveStream { task: run.task, attempt: run.attempt, stream: *stream };
                let offset = u64::try_from(*offset).unwrap_or(0);
                self.append_live(of, offset, bytes).await?;
                self.trim_live(of, offset + bytes.len() as u64).await?;
                Answer::Done
            }
            Ask::RemoveLive { task, attempt } => {
                self.remove_live(*task, Some(*attempt)).await?;
                Answer::Done
            }
            Ask::Upload { file, stream, encoding, bytes } => {
                self.announce_upload(run, *file).await?;
                self.put_output(*file, (run.task, *stream), *encoding, bytes.as_slice()).await?;
                Answer::Done
            }
            Ask::Finish(finish) => self.end_attempt(run, finish, None).await?.into(),
            Ask::RetryLater { finish, pause_ms } => {
                self.end_attempt(run, finish, Some(of_millis(*pause_ms))).await?.into()
            }
            Ask::KeepCommon { part, text } => done_or_lost(self.keep_common(part, text).await),
            Ask::Settle => match self.settle_commit_of(run).await? {
                Commit::Done(status) => Answer::Committed(Some(status)),
                Commit::Never => Answer::Committed(None),
                // The runner asks by itself until it knows.
                Commit::Open => Answer::Trouble("a transaction of the plugin has not ended".to_owned()),
            },
            Ask::Register { token, timeout_ms } => {
                done_or_lost(self.register_external(run, token, of_millis(*timeout_ms)).await?)
            }
            Ask::Detach => match self.detach_external(run).await? {
                Detached::Done | Detached::Ended => Answer::Stored,
                Detached::NotRunning => Answer::NotRunning,
            },
            Ask::Renew | Ask::LetGo => Answer::Trouble("this is not written like that".to_owned()),
        })
    }
}
