//! Descriptions of whole objects, as upstream's kubectl prints them.

mod failures;
mod goldens;
