//! The pages in a real browser, in front of a real DCI, DEN and MongoDB. [`disbatch_tests::browser`] says what a test
//! can do with one.

mod access;
mod accessible;
mod balance;
mod follow;
mod hostile;
mod keyboard;
mod lost;
mod narrow;
mod output;
mod overview;
mod schedules;
mod session;
mod site;
mod submit;
mod subscriptions;
mod tasks;
mod theme;
