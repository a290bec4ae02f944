//! Rules as text: what a Service becomes, and that updates and rebuilds end in the same table.

mod kernel;
mod same;
mod text;
