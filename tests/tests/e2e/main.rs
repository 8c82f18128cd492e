//! The end-to-end tests, in one binary: each further one would compile and link the database driver again.

mod auth;
mod bad_input;
mod balance;
mod bulk;
mod claim;
mod controls;
mod dev;
mod examples;
mod faults;
mod leases;
mod life;
mod limits;
mod live;
mod outage;
mod output;
mod perl;
mod runner;
mod survival;
mod tls;
