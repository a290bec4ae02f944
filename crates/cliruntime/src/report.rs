//! What commands say of objects that they made or changed: `pod/a created`, or the object in the format of `-o`.

use serde_json::Value;

use crate::command::Invocation;
use crate::error::Outcome;
use crate::print::{self, OBJECTS, Printer, Request};
use crate::resource::helper::DryRun;

pub struct Report {
    printer: Option<Printer>,
    dry_run: DryRun,
    managed: bool,
}

impl Report {
    /// By the flags. `typed` says that what is shown may have been made here.
    pub fn new(invocation: &Invocation, dry_run: DryRun, typed: bool) -> Outcome<Self> {
        let request = Request { allowed: OBJECTS, typed };
        let printer = Printer::from_flags(&invocation.flags, &invocation.session.environment, &request)?;
        Ok(Self { printer, dry_run, managed: invocation.flags.is("show-managed-fields") })
    }

    /// Whether the object itself is shown.
    pub fn shows_objects(&self) -> bool {
        !matches!(self.printer, None | Some(Printer::Name))
    }

    /// Says what was done with an object.
    pub fn say(&mut self, invocation: &mut Invocation, object: &Value, done: &str) -> Outcome {
        invocation.warn();
        let text = match &mut self.printer {
            None => format!("{} {done}{}\n", print::name(object), self.dry_run.suffix()),
            Some(printer) if printer.omits_managed_fields() && !self.managed => {
                let mut object = object.clone();
                print::without_managed_fields(&mut object);
                printer.print(&object)?
            }
            Some(printer) => printer.print(object)?,
        };
        if self.shows_objects() { invocation.print(&text) } else { invocation.say(text.trim_end_matches('\n')) }
    }
}
