//! What tasks write for terminals.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    disbatch_hostile::terminal::check(bytes);
});
