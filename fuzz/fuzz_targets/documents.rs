//! What is stored in the database.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    disbatch_hostile::documents::check(bytes);
});
