//! Bytes as request bodies, and what is understood of them as objects that our own clients read. The same way is taken by
//! `cargo test -p apiserver`, with objects made at random.

use std::process::ExitCode;

use fuzz::body::{MEDIA, swallow};
use machinery::codec::{cbor, protobuf, yaml};
use machinery::{Value, value};

/// A body, after a byte that says in which form it is.
fn input(form: u8, body: impl AsRef<[u8]>) -> Vec<u8> {
    [&[form], body.as_ref()].concat()
}

fn message(object: &Value) -> Option<Vec<u8>> {
    let (group, version) = value::text(object, "apiVersion").rsplit_once('/').unwrap_or(("", "v1"));
    let of = facts::kind(group, version, value::text(object, "kind"))?.ty?.def();
    let mut kept = object.clone();
    machinery::schema::conform(&mut kept, of).ok()?;
    of.message.then(|| protobuf::encode(&kept, of).to_vec())
}

fn main() -> ExitCode {
    let mut inputs = Vec::new();
    for object in fuzz::samples() {
        inputs.push(input(0, object.to_string()));
        inputs.push(input(1, yaml::encode(&object)));
        inputs.push(input(2, cbor::encode(&object)));
        inputs.extend(message(&object).map(|message| input(3, message)));
    }
    fuzz::run("decode", inputs, |bytes| {
        let Some((form, body)) = bytes.split_first() else { return 0 };
        let media = MEDIA[usize::from(*form) % MEDIA.len()];
        swallow(media, body);
        usize::from(machinery::codec::decode(media, body).is_ok())
    })
}
