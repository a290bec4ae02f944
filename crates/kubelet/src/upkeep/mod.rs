//! What keeps the node in order whatever its pods are: logs that do not fill the disk, and pods that end before the machine goes down.
//! [`tasks`] runs these loops and those of other rooms.

pub mod rotation;
pub mod shutdown;
pub(crate) mod tasks;
