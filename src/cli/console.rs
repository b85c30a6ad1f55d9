//! Where a command writes: results to `out`, progress and messages to `err`.

use std::fmt;
use std::io::{self, Write};

use serde::Serialize;

/// The two streams of a command. They are the process's own, or lead to the client of a running server.
pub struct Console {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    /// Whether `err` is a terminal on which a progress bar may move.
    pub interactive: bool,
    /// Width in columns to which tables are fitted.
    pub width: usize,
}

impl fmt::Debug for Console {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Console {{ interactive: {}, width: {} }}", self.interactive, self.width)
    }
}

impl Console {
    /// A console over any two streams.
    pub fn new(
        out: Box<dyn Write + Send>,
        err: Box<dyn Write + Send>,
        interactive: bool,
        width: usize,
    ) -> Self {
        Self { out, err, interactive, width }
    }

    /// Writes a piece of the result.
    pub fn print(&mut self, text: impl fmt::Display) -> io::Result<()> {
        write!(self.out, "{text}")
    }

    /// Writes a result as JSON, indented, with a newline behind it.
    pub fn print_json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut self.out, value)?;
        writeln!(self.out)
    }

    /// Writes a line of progress or a message.
    pub fn say(&mut self, text: impl fmt::Display) -> io::Result<()> {
        writeln!(self.err, "{text}")
    }

    /// Writes a piece of a message, as it is.
    pub fn print_error(&mut self, text: impl fmt::Display) -> io::Result<()> {
        write!(self.err, "{text}")
    }

    /// Sends what is still buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()?;
        self.err.flush()
    }
}
