//! Runs the adapter as a runner does, with a container engine that is slow, busy, or refuses.

#[cfg(test)]
mod engine;
#[cfg(test)]
mod runs;
