//! Changes of elements as the kernel takes them: the same as the text of [`crate::render`], without a program that reads it.

use std::collections::BTreeSet;

use node::nft::{self, Data, Registers};

use crate::model::Family;
use crate::plan::{Frontend, Key, Value};
use crate::render::{TABLE, chain_of, set_of};
use crate::table::Changes;

/// Adds the changes, unless there are others than of elements.
pub fn change(out: &mut nft::Elements, family: Family, changes: &Changes) -> bool {
    let Changes {
        remove,
        add,
        remove_last: _,
        new_picks: _,
        dead_picks: _,
        new_clients,
        dead_clients,
        chains,
        dead_chains,
    } = changes;
    if !(new_clients.is_empty() && dead_clients.is_empty() && chains.is_empty() && dead_chains.is_empty()) {
        return false;
    }
    self::remove(out, family, remove);
    let ip = word(family);
    let added: Vec<(&Key, &Value)> = add.iter().collect();
    for elements in added.chunk_by(|(a, _), (b, _)| set_of(a) == set_of(b)) {
        let bytes: Vec<(Vec<u8>, Data)> =
            elements.iter().map(|(key, value)| (key_bytes(key), data(key, value))).collect();
        out.add(ip, TABLE, &set_of(elements[0].0), &bytes);
    }
    true
}

/// Adds the removal of these elements.
pub fn remove(out: &mut nft::Elements, family: Family, keys: &BTreeSet<Key>) {
    let removed: Vec<&Key> = keys.iter().collect();
    for keys in removed.chunk_by(|a, b| set_of(a) == set_of(b)) {
        let elements: Vec<Vec<u8>> = keys.iter().map(|key| key_bytes(key)).collect();
        out.delete(word(family), TABLE, &set_of(keys[0]), &elements);
    }
}

fn word(family: Family) -> nft::Family {
    match family {
        Family::V4 => nft::Family::Ip,
        Family::V6 => nft::Family::Ip6,
    }
}

fn key_bytes(key: &Key) -> Vec<u8> {
    let key_of = Registers::default();
    let key = match *key {
        Key::ClusterIp(ip) => key_of.address(ip),
        Key::Hairpin(ip) => key_of.address(ip).address(ip),
        Key::Dispatch(_, Frontend::Address(ip, protocol, port)) => {
            key_of.address(ip).part(&[protocol.number()]).port(port)
        }
        Key::Dispatch(_, Frontend::NodePort(protocol, port)) => key_of.part(&[protocol.number()]).port(port),
        Key::Endpoint(_, Frontend::Address(ip, _, port), number) => key_of.address(ip).port(port).number(number),
        Key::Endpoint(_, Frontend::NodePort(_, port), number) => key_of.port(port).number(number),
    };
    key.bytes()
}

fn data(key: &Key, value: &Value) -> Data {
    match value {
        Value::Member => Data::None,
        Value::Target(ip, port) => Data::Value(Registers::default().address(*ip).port(*port).bytes()),
        Value::Verdict(verdict) => chain_of(key, verdict).map_or(Data::Drop, Data::Goto),
    }
}
