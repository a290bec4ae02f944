//! What a table shows of ServiceAccounts.

use crate::table::cells::{age, name};
use crate::table::{AGE, NAME, Printer};

pub static TABLE: Printer = Printer::new(&[NAME, AGE], |object, now| vec![name(object), age(object, now)]);
