#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| butler_fuzz::vrrp(data));
