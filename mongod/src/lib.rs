//! A private MongoDB server: found or fetched ([`locate`]), started and stopped ([`server`], several as a
//! [`replica_set`]), and at hand for
//! tests ([`testing`]).
//!
//! A server that is started here never outlives the process that started it, even if that one is killed:
//! see [`watchdog`].

pub mod locate;
pub mod replica_set;
pub mod server;
pub mod testing;
pub mod watchdog;
