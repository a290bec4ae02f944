//! Which client sticks to which endpoint, carried over when the whole table is written anew.
//!
//! The kernel learns and forgets clients by itself; only a rewrite, which makes all sets anew, would lose them. So what
//! it knows is read before and written again with the time that was left.

use std::collections::BTreeMap;

use serde_json::Value;

/// Clients by set: address and seconds left.
pub type Clients = BTreeMap<String, Vec<(String, u64)>>;

/// The prefix of the sets' names.
const SETS: &str = "affinity/";

/// Reads the clients out of a table as `nft -j list table` shows it. What it cannot make sense of is left out.
pub fn of_table(json: &[u8]) -> Clients {
    let listed: Value = serde_json::from_slice(json).unwrap_or_default();
    let sets = listed["nftables"].as_array().into_iter().flatten().filter_map(|item| item.get("set"));
    let mut clients = Clients::new();
    for set in sets {
        let Some(name) = set["name"].as_str().filter(|name| name.starts_with(SETS)) else { continue };
        let known = set["elem"].as_array().into_iter().flatten().filter_map(|element| {
            let element = &element["elem"];
            Some((element["val"].as_str()?.to_owned(), element["expires"].as_u64().filter(|left| *left > 0)?))
        });
        clients.insert(name.to_owned(), known.collect());
    }
    clients.retain(|_, known| !known.is_empty());
    clients
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_read_with_the_time_they_have_left() {
        let json = br#"{"nftables": [{"metainfo": {}}, {"table": {"name": "t"}},
            {"set": {"name": "affinity/ns/web/tcp//10.1.0.2/80", "elem": [
                {"elem": {"val": "192.0.2.9", "timeout": 600, "expires": 598}}, {"elem": {"val": "192.0.2.8", "expires": 0}}]}},
            {"set": {"name": "affinity/ns/web/tcp//10.1.0.3/80"}},
            {"set": {"name": "cluster-ips", "elem": ["10.96.0.1"]}}]}"#;
        let clients = of_table(json);
        assert_eq!(clients.len(), 1);
        assert_eq!(clients["affinity/ns/web/tcp//10.1.0.2/80"], [("192.0.2.9".to_owned(), 598)]);
        assert!(of_table(b"").is_empty() && of_table(b"[1]").is_empty());
    }
}
