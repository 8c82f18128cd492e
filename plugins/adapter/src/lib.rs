//! What the adapters share: programs that run plugins by the means of another system.
//!
//! A runner starts an adapter as it starts any plugin: the task is one line of JSON on standard input, SIGTERM means that it is to
//! end, and JSON lines on a descriptor are for the runner. The line has one key more, `worker`, which is for the adapter alone
//! ([`Line`]).

mod control;
pub mod hosts;
mod line;
mod secrets;
mod stop;
mod words;

pub use control::{Control, VARIABLE as CONTROL_VARIABLE, runner};
pub use line::{Line, Worker, grace, seconds};
pub use secrets::{Filled, fill};
pub use stop::Stop;
pub use words::{note, with_causes};
