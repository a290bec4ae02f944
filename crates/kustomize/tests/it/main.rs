//! Whole builds, as upstream's kubectl makes them.

mod goldens;
mod roots;
