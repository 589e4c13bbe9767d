//! `filter` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tapswitch_fuzz::filter(data));
