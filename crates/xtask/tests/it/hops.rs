//! ARCHITECTURE.md names a file for each of the twelve hops. It is there, and it is the one that reports the hop.

/// Hops in order, and the stages of each, as `hops` has them.
fn hops() -> Vec<(String, Vec<String>)> {
    let text = std::fs::read_to_string(xtask::root().join("crates/hops/src/names.rs")).expect("the names");
    let all = text.split_once("ALL: [Self; 12] = [").and_then(|(_, rest)| rest.split_once(']')).expect("the hops").0;
    let names = all.lines().filter_map(|line| line.trim().strip_prefix("Self::")?.strip_suffix(','));
    let stages = |hop: &str| {
        let of = format!(" of {hop};");
        let lines = text.lines().filter_map(|line| line.trim().strip_suffix(&of)?.split_once(" = "));
        lines.map(|(stage, _)| stage.to_owned()).collect()
    };
    names.map(|hop| (hop.to_owned(), stages(hop))).collect()
}

/// The rows of the table: number, name, and the file if one is named.
fn rows() -> Vec<(usize, String, Option<String>)> {
    let text = std::fs::read_to_string(xtask::root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let table = text.split_once("| hop | as in `hops` | open |").expect("a table of hops").1;
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = lines.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let named = |cell: &str| cell.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')).map(str::to_owned);
    cells
        .map(|cells| (cells[1].parse().expect("a number"), named(cells[2]).expect("a name"), named(cells[3])))
        .collect()
}

#[test]
fn each_hop_is_reported_by_the_file_to_open() {
    let (hops, rows) = (hops(), rows());
    assert_eq!((hops.len(), rows.len()), (12, 12));
    for ((number, name, file), (at, (hop, stages))) in rows.iter().zip(hops.iter().enumerate()) {
        assert_eq!((*number, name), (at + 1, hop), "the table is in the order of `hops`");
        let Some(file) = file else {
            // What a client does, it does in a process of its own.
            assert_eq!(hop, "Client", "no file is named");
            continue;
        };
        let text = std::fs::read_to_string(xtask::root().join(file)).unwrap_or_else(|why| panic!("{file}: {why}"));
        let reports = text.contains(&format!("Hop::{hop}"))
            || stages.iter().any(|stage| text.contains(&format!("Stage::{stage},")));
        assert!(reports || hop == "Client", "{file} reports neither {hop} nor one of {stages:?}");
    }
}
