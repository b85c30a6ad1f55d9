//! Where a command writes: results to `out`, progress and messages to `err`.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};

use serde::Serialize;

/// The two streams of a command. They are the process's own, or lead to the client of a running server.
///
/// What is written may come from a wheel, an index or a file name. Characters that move a terminal's cursor, change its
/// colours or its title, or turn the direction of writing are written as escapes, so that no wheel can paint a verdict.
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
        self.out.write_all(harmless(&text.to_string()).as_bytes())
    }

    /// Writes a result as JSON, indented, with a newline behind it.
    pub fn print_json(&mut self, value: &impl Serialize) -> io::Result<()> {
        // JSON's own escapes stop at the first 32 characters. Any other stands in a string, where an escape means the same.
        let text = serde_json::to_string_pretty(value)?;
        self.out.write_all(escaped(&text, write_json_escape).as_bytes())?;
        writeln!(self.out)
    }

    /// Writes a line of progress or a message, in one piece: whoever reads it of a process that is killed has the whole line or
    /// nothing of it.
    pub fn say(&mut self, text: impl fmt::Display) -> io::Result<()> {
        let mut line = harmless(&text.to_string()).into_owned();
        line.push('\n');
        self.err.write_all(line.as_bytes())
    }

    /// Writes a piece of a message, as it is.
    pub fn print_error(&mut self, text: impl fmt::Display) -> io::Result<()> {
        self.err.write_all(harmless(&text.to_string()).as_bytes())
    }

    /// Sends what is still buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()?;
        self.err.flush()
    }
}

/// Whether a terminal does with the character something else than show it.
fn is_harmful(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        // Marks, embeddings, overrides and isolates of the direction of writing; separators of lines and paragraphs.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        other => other.is_control(),
    }
}

/// The text with escapes in the place of harmful characters.
fn harmless(text: &str) -> Cow<'_, str> {
    escaped(text, |letter, out| out.extend(letter.escape_unicode()))
}

/// As JSON writes it: sixteen bits at once.
fn write_json_escape(letter: char, out: &mut String) {
    use fmt::Write as _;
    for unit in letter.encode_utf16(&mut [0; 2]) {
        let _infallible = write!(out, "\\u{unit:04x}");
    }
}

fn escaped(text: &str, write: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_harmful(letter) { write(letter, &mut out) } else { out.push(letter) }
    }
    Cow::Owned(out)
}

/// A name or a message that has to stay on one line, also where it goes to a terminal by another way than the console.
pub(super) fn one_line(text: &str) -> Cow<'_, str> {
    match harmless(text) {
        text if text.contains(['\n', '\t']) => Cow::Owned(text.replace('\n', "\\n").replace('\t', "\\t")),
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_a_terminal_would_obey() {
        assert_eq!(harmless("plain ×\n\ttext é 漢"), "plain ×\n\ttext é 漢");
        assert_eq!(
            harmless("\u{1b}[31m\r\u{9b}2J\u{7f}\u{202e}"),
            "\\u{1b}[31m\\u{d}\\u{9b}2J\\u{7f}\\u{202e}"
        );
        assert_eq!(one_line("a\nadded\u{1b} b"), "a\\nadded\\u{1b} b");
    }

    #[test]
    fn an_escape_in_json_means_the_same_character() {
        let value = "\u{1b}\u{9b}\u{7f}\u{202e}é\"\n";
        let text = serde_json::to_string_pretty(value).unwrap();
        let shown = escaped(&text, write_json_escape);
        assert!(!shown.contains(is_harmful), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), value);
    }
}
