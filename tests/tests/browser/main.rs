//! The pages in a real browser, in front of a real DCI, DEN and MongoDB. [`disbatch_tests::browser`] says what a test
//! can do with one.

mod access;
mod accessible;
mod answers;
mod arrays;
mod audit;
mod balance;
mod charts;
mod documentation;
mod finding;
mod follow;
mod hostile;
mod jobs;
mod keyboard;
mod locks;
mod lost;
mod moments;
mod narrow;
mod nodes;
mod output;
mod overview;
mod palette;
mod queue_settings;
mod queues;
mod schedules;
mod session;
mod shadows;
mod site;
mod submit;
mod subscriptions;
mod task;
mod tasks;
mod theme;
mod titles;
mod versions;
mod zones;
