//! Runs the adapter as a runner does, with a small API server of Kubernetes in the place of a cluster.

#[cfg(test)]
mod adapter;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod connections;
#[cfg(test)]
mod once;
#[cfg(test)]
mod runs;
