//! Configuration files and manifests.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    disbatch_hostile::relaxed_json::check(bytes);
});
