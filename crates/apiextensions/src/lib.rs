//! What the schema of a CustomResourceDefinition *means*: which fields an object keeps, which it gets, and what is wrong with it.
//!
//! [`Definition::read`] says which kinds a definition makes. [`Schema::read`] makes a schema once of the `openAPIV3Schema` of a version. An object then passes, in this order: [`Schema::coerce`] drops what the
//! schema does not know and names it, [`Schema::default`] fills in what is not given, [`Schema::validate`] says what is wrong, in the words of upstream's
//! validator, [`Schema::duplicates`] finds items of lists that are given twice, and the [`rules`] of the schema are asked, within their budget.
//!
//! Deliberately absent: whether the schema itself is one that may be served (that is the business of the definition's own rules), and I/O. A schema
//! comes from users: reading one is bounded in depth, and no pattern takes more than linear time.

mod coerce;
mod columns;
pub mod conversion;
mod correlate;
mod defaults;
pub mod definition;
mod duplicates;
mod formats;
mod inspect_defaults;
pub mod jsonpath;
mod meaning;
mod prune;
pub mod rules;
mod schema;
mod validate;

pub use coerce::as_go_writes;
pub use columns::Column;
pub use definition::{Conversion, Definition, Version};
pub use formats::is_known_format;
pub use meaning::{Judgement, Meaning};
pub use schema::{Additional, ListType, MapType, ReadError, Rule, Schema, Types};
