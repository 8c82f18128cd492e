//! What plugins say over their control channel.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    disbatch_hostile::control::check(bytes);
});
