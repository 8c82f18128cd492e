//! Who gets in, and what they may do there: a real `dci` and a real database, from outside.

#[path = "../replay/server.rs"]
mod server;

mod accounts;
mod audit;
mod explained;
mod matrix;
mod others;
mod sessions;
mod world;
