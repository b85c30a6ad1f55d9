//! The report of a pass, for people.

use std::fmt::Write as _;

use crate::cli::console::in_units;
use crate::sync::{Event, Report, State, Why};

/// Renders the report within a width in columns.
pub(super) fn render(report: &Report, width: usize) -> String {
    let mut out = String::new();
    for row in &report.devices {
        block_of_device(&mut out, report, &row.device, width);
        for package in row
            .packages
            .iter()
            .filter(|package| matches!(package.state, State::NotReached | State::OverLimit))
        {
            let state = if package.state == State::OverLimit { "too large" } else { "lost" };
            wrapped(&mut out, &format!("{state:9} {} ({})", package.file, package.upstream), 2, width);
        }
        if let Some(error) = &row.error {
            for line in error.text.lines() {
                wrapped(&mut out, line, 2, width);
            }
        }
    }
    let mut events = |title: &str, events: &[Event]| {
        if !events.is_empty() {
            let _infallible = writeln!(out, "{title}");
            for event in events {
                wrapped(&mut out, &format!("{}: {}", event.kind, event.text), 2, width);
            }
        }
    };
    events("Incidents", &report.incidents);
    events("Not reached", &report.unreachable);
    if !report.gone.is_empty() {
        let _infallible = writeln!(out, "Gone upstream; kept here");
        for file in &report.gone {
            let _infallible = writeln!(out, "  {file}");
        }
    }
    for row in &report.shadowed {
        let taken = row
            .owner
            .as_ref()
            .map_or("of which nothing is taken now".to_owned(), |owner| format!("it is taken from {owner}"));
        wrapped(&mut out, &format!("{} also lists {}; {taken}", row.upstream, row.project), 0, width);
    }
    for note in &report.notes {
        wrapped(&mut out, &format!("note: {note}"), 0, width);
    }
    summary(&mut out, report, width);
    out
}

fn block_of_device(out: &mut String, report: &Report, device: &str, width: usize) {
    let _infallible = writeln!(out, "{device}");
    for kept in report.kept.iter().filter(|kept| kept.device == device) {
        let fetched = if kept.fetched { ", fetched now" } else { "" };
        let _infallible = writeln!(
            out,
            "  {:9} {}",
            kept.verdict,
            format_args!(
                "{} {} ({}, {}{fetched})",
                kept.project,
                kept.version,
                in_units(kept.size),
                kept.upstream
            )
        );
    }
    for planned in report.planned.iter().filter(|planned| planned.devices.iter().any(|id| id == device)) {
        let bytes = planned.size.map_or_else(|| "size unknown".to_owned(), in_units);
        let why = match planned.why {
            Why::ToInspect => "to be inspected",
            Why::Admitted => "admitted",
        };
        wrapped(out, &format!("fetch     {} ({bytes}, {}, {why})", planned.file, planned.upstream), 2, width);
    }
    for refused in report.refused.iter().filter(|refused| refused.device == device) {
        let _infallible = writeln!(out, "  {:9} {}", refused.verdict, refused.file);
        if let Some(reason) = refused.reasons.first() {
            wrapped(out, &reason.text, 12, width);
            if !reason.remedy.is_empty() {
                wrapped(out, &format!("instead: {}", reason.remedy), 12, width);
            }
        }
    }
    for missing in report.missing.iter().filter(|missing| missing.device == device) {
        // What the device's error tells in whole is not told twice.
        let told =
            report.devices.iter().filter(|row| row.device == device).filter_map(|row| row.error.as_ref());
        if told.into_iter().all(|error| error.text != missing.text) {
            wrapped(out, &format!("nothing   for {}: {}", missing.requirement, missing.text), 2, width);
        }
    }
}

fn summary(out: &mut String, report: &Report, width: usize) {
    let skipped: Vec<String> =
        report.skipped.iter().map(|(reason, number)| format!("{number} {reason}")).collect();
    let mut text = format!(
        "kept {}, refused {}, downloaded {} ({})",
        report.kept.len(),
        report.refused.len(),
        report.downloads,
        in_units(report.bytes)
    );
    if report.dry_run {
        let bytes =
            report.planned.iter().fold(0_u64, |sum, planned| sum.saturating_add(planned.size.unwrap_or(0)));
        let _infallible = write!(text, ", would fetch {} ({})", report.planned.len(), in_units(bytes));
    }
    if !skipped.is_empty() {
        let _infallible = write!(text, "; passed over without a download: {}", skipped.join(", "));
    }
    if report.stopped_at_limit {
        text.push_str("; stopped at the size limit");
    }
    wrapped(out, &text, 0, width);
}

/// Writes a text as lines of at most `width` columns, all but the first two columns further in.
fn wrapped(out: &mut String, text: &str, indent: usize, width: usize) {
    let mut column = 0;
    for (index, word) in text.split_whitespace().enumerate() {
        let length = word.chars().count();
        if index == 0 {
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if column.saturating_add(length).saturating_add(1) > width {
            out.push('\n');
            column = indent.saturating_add(2);
            out.extend(std::iter::repeat_n(' ', column));
        } else {
            out.push(' ');
            column = column.saturating_add(1);
        }
        out.push_str(word);
        column = column.saturating_add(length);
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words() {
        let mut out = String::new();
        wrapped(&mut out, "one two three", 2, 10);
        assert_eq!(out, "  one two\n    three\n");
    }
}
