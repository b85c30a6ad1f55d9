//! What a server has done by the commands: new snapshots, and syncs.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use super::{Console, Context, snapshot, sync};
use crate::server::{Hands, Say, SyncEnd, SyncOrder};
use crate::store::NewSnapshot;

/// Width in columns of a report's text where nobody says another one.
const COLUMNS: usize = 100;

/// The narrowest and the widest that is taken.
const NARROWEST: usize = 20;
const WIDEST: usize = 400;

/// The commands of a server, which all work on its store.
#[derive(Debug)]
pub(super) struct Commands(Mutex<Context>);

impl Commands {
    /// Those that work as the given one does.
    pub(super) fn new(context: &Context) -> Self {
        let nowhere = Console::new(Box::new(io::sink()), Box::new(io::sink()), false, COLUMNS);
        Self(Mutex::new(context.twin(nowhere, context.who.clone())))
    }

    /// A snapshot by the policy as it is now.
    pub(super) fn snapshot(&self, reason: &str) -> Result<NewSnapshot, String> {
        let nowhere = Console::new(Box::new(io::sink()), Box::new(io::sink()), false, COLUMNS);
        snapshot::new(reason, &self.context(nowhere, "")).map_err(|error| format!("{error:#}"))
    }

    fn context(&self, console: Console, who: &str) -> Context {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).twin(console, who.to_owned())
    }
}

impl Hands for Commands {
    fn new_snapshot(&self, reason: &str, name: Option<String>) -> Result<NewSnapshot, String> {
        Ok(NewSnapshot { name, always: true, ..self.snapshot(reason)? })
    }

    fn sync(&self, order: SyncOrder, who: &str, say: Say) -> SyncEnd {
        let columns = usize::from(order.columns.unwrap_or(0));
        let columns = if columns == 0 { COLUMNS } else { columns.clamp(NARROWEST, WIDEST) };
        let lines = Box::new(Lines { say, begun: Vec::new() });
        let mut context = self.context(Console::new(Box::new(io::sink()), lines, false, columns), who);
        let done = sync::perform(&sync::Arguments::of(order), &mut context);
        let report = match &done {
            Ok(report) => serde_json::to_value(report).ok(),
            Err(_) => None,
        };
        let text = done.as_ref().ok().map(|report| sync::text(report, columns));
        let concluded = done.and_then(|report| sync::conclude(&report));
        let error = concluded.as_ref().err().map(|error| format!("{error:#}"));
        SyncEnd { code: super::exit_code(&concluded), report, text, error }
    }
}

/// Takes what a command writes apart into lines.
struct Lines {
    say: Say,
    begun: Vec<u8>,
}

/// The longest line that is gathered, in bytes.
const LONGEST_LINE: usize = 64 << 10;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.begun.len() > LONGEST_LINE {
                (self.say)(String::from_utf8_lossy(&self.begun).trim_end());
                self.begun.clear();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
