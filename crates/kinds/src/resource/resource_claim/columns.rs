//! What a table shows of ResourceClaims.

use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{age, is_set, name};
use crate::table::{AGE, NAME, Printer, own, text};

pub static TABLE: Printer = Printer::new(
    &[NAME, text("State", own("How far the claim is: pending, allocated, reserved, deleted.")), AGE],
    |claim, now| vec![name(claim), json!(state(claim)), age(claim, now)],
);

fn state(claim: &Value) -> String {
    let (deleted, allocated) = (is_set(claim, "metadata.deletionTimestamp"), is_set(claim, "status.allocation"));
    let reserved = allocated && !value::list(claim, "status.reservedFor").is_empty();
    let states =
        [(deleted, "deleted"), (!allocated && !deleted, "pending"), (allocated, "allocated"), (reserved, "reserved")];
    states.into_iter().filter(|(is, _)| *is).map(|(_, state)| state).collect::<Vec<_>>().join(",")
}
