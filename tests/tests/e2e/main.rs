//! The end-to-end tests, in one binary: each further one would compile and link the database driver again.

mod bad_input;
mod claim;
mod output;
mod runner;
mod survival;
