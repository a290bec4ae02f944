//! Bytes as request bodies, and what is understood of them as objects that our own clients read. The same way is taken by
//! `cargo test -p apiserver`, with objects made at random.

#![no_main]

#[path = "../../crates/apiserver/tests/it/body.rs"]
mod body;
#[path = "../../crates/apiserver/tests/it/typed.rs"]
mod typed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some((media, bytes)) = bytes.split_first() {
        body::swallow(body::MEDIA[usize::from(*media) % body::MEDIA.len()], bytes);
    }
});
