//! What the schema of a CustomResourceDefinition *means*: which fields an object keeps, which it gets, and what is wrong with it.
//!
//! [`Schema::read`] makes a schema once of the `openAPIV3Schema` of a version. An object then passes, in this order: [`Schema::prune`] drops what the
//! schema does not know and names it, [`Schema::drop_nulls`] and [`Schema::default`] fill in what is not given, [`Schema::validate`] says what is wrong,
//! in the words of upstream's validator, and [`Schema::duplicates`] finds items of lists that are given twice.
//!
//! Deliberately absent: whether the schema itself is one that may be served (that is the business of the definition's own rules), and I/O. A schema
//! comes from users: reading one is bounded in depth, and no pattern takes more than linear time.

mod defaults;
mod duplicates;
mod formats;
mod prune;
mod schema;
mod validate;

pub use schema::{Additional, ListType, MapType, ReadError, Rule, Schema, Types};
