//! Selectors: which objects a list, a watch or an owner means.
//!
//! [`label`] has the rich language over labels, [`field`] the small one over the few fields a kind makes selectable.
//! Both are parsed once and matched many times, without an allocation per match.

pub mod field;
pub mod label;

pub use field::FieldSelector;
pub use label::LabelSelector;
