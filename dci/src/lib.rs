//! `dci`: the web server of Disbatch. JSON for programs, pages for people, at the same addresses.
//!
//! This is the whole of it; `main.rs` only calls [`main`]. Nothing else is for others, but for [`input`], which tests need
//! that make up what clients might send.

mod accept;
mod access;
mod admission;
mod allowance;
mod api;
mod args;
mod arrays;
mod browsers;
mod bulk;
mod bundle;
mod catalogue;
mod changes;
mod connections;
mod counts;
mod doctor;
mod error;
mod events;
mod fields;
mod files;
mod gates;
mod history;
pub mod input;
mod json;
mod legacy;
mod measure;
mod openapi;
mod options;
mod output;
mod params;
mod query;
mod raw;
mod request_body;
mod rows;
mod schedules;
mod server;
mod shadows;
mod state;
mod static_files;
mod tls;
mod ui;
mod values;
mod watch;

pub use server::main;
