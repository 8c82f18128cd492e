//! Who gets in, and what they may do there: a real `dci` and a real database, from outside.

#[path = "../replay/server.rs"]
mod server;

mod accounts;
mod admission;
mod answers;
mod audit;
mod collections;
mod documentation;
mod explained;
mod files;
mod gates;
mod matrix;
mod moments;
mod names;
mod others;
mod params;
mod reruns;
mod sessions;
mod shadows;
mod steps;
mod tenants;
mod workers;
mod world;
