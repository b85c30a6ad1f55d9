//! `jetwheel audit`, and who is noted in it.

use std::io::{BufRead as _, BufReader};

use serde_json::{Value, json};

use super::console::one_line;
use super::{Answer, Context, Format};
use crate::store::AuditEntry;

/// The longest line of the table of users that is read, in bytes.
const LONGEST_LINE: usize = 4096;

/// Arguments of `jetwheel audit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What is shown is `audit.jsonl` in the data folder, one JSON object a line. A full one (8 MiB) is called audit.jsonl.1, then \
audit.jsonl.2, and so on; none is ever removed.

Examples:
  jetwheel audit
  jetwheel audit --last 20
  jetwheel audit --format json")]
pub struct Arguments {
    /// Show so many of the newest changes
    #[arg(long, value_name = "COUNT")]
    last: Option<usize>,
}

/// What the API answers.
#[derive(Debug, serde::Deserialize)]
struct Changes {
    changes: Vec<AuditEntry>,
}

pub(super) fn run(arguments: &Arguments, context: &mut Context) -> anyhow::Result<Answer> {
    let mut entries = if let Some(remote) = context.remote() {
        let last = arguments.last.map(|last| last.to_string());
        let query: Vec<(&str, &str)> = last.iter().map(|last| ("last", last.as_str())).collect();
        remote.get::<Changes>("audit", &query)?.changes
    } else {
        context.store()?.audit()?
    };
    let first = entries.len().saturating_sub(arguments.last.unwrap_or(usize::MAX));
    let entries = entries.split_off(first);
    if context.format == Format::Json {
        context.console.print_json(&json!({"changes": entries}))?;
        return Ok(Answer::Yes);
    }
    for AuditEntry { time, who, action, what } in entries {
        let line = format!("{}  {who}  {action}  {what}", to_the_second(&time));
        context.console.print(format_args!("{}\n", one_line(&line)))?;
    }
    Ok(Answer::Yes)
}

/// A time in RFC 3339 and UTC without its fraction of a second.
fn to_the_second(time: &str) -> String {
    time.split_once('.').map_or_else(|| time.to_owned(), |(seconds, _)| format!("{seconds}Z"))
}

impl Context {
    /// Notes in the audit log what the command changed: durable when this returns.
    pub fn audit(&mut self, action: &str, what: Value) -> anyhow::Result<()> {
        let entry = AuditEntry::now(&self.who, action, what);
        Ok(self.store()?.put_audit(&entry)?)
    }
}

/// A user of this machine, as the audit log names one: `user:NAME`, or `user:NUMBER`.
pub(super) fn user(id: u32) -> String {
    let named = || {
        let users = BufReader::new(fs_err::File::open("/etc/passwd").ok()?);
        users.lines().map_while(Result::ok).filter(|line| line.len() <= LONGEST_LINE).find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
        })
    };
    format!("user:{}", named().unwrap_or_else(|| id.to_string()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_shown_to_the_second() {
        for time in ["2026-11-30T14:36:08.123456789Z", "2026-11-30T14:36:08Z"] {
            assert_eq!(super::to_the_second(time), "2026-11-30T14:36:08Z");
        }
    }

    #[test]
    fn names_users() {
        assert_eq!(super::user(0), "user:root");
        assert_eq!(super::user(4_000_000_000), "user:4000000000");
    }
}
