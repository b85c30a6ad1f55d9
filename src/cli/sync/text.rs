//! The report of a pass, for people.

use std::fmt::Write as _;

use crate::sync::{Event, Refused, Report, State, Why};
use crate::wheel::Size;

/// How many files that are refused for the same reason are named.
const MOST_NAMED: usize = 8;

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
            if !report.unreachable.is_empty() {
                wrapped(&mut out, "What could not be reached, see below, may have it.", 2, width);
            }
        }
    }
    events(&mut out, "Incidents", &report.incidents, width);
    events(&mut out, "Not reached", &report.unreachable, width);
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
                Size(kept.size),
                kept.upstream
            )
        );
    }
    for planned in report.planned.iter().filter(|planned| planned.devices.iter().any(|id| id == device)) {
        let bytes = planned.size.map_or_else(|| "size unknown".to_owned(), |size| Size(size).to_string());
        let why = match planned.why {
            Why::ToInspect => "to be inspected",
            Why::Admitted => "admitted",
        };
        wrapped(out, &format!("fetch     {} ({bytes}, {}, {why})", planned.file, planned.upstream), 2, width);
    }
    let refused = report.refused.iter().filter(|refused| refused.device == device);
    let why = |refused: &Refused| {
        let first = refused.reasons.first();
        (refused.verdict, first.map(|reason| (reason.text.clone(), reason.remedy.clone())))
    };
    for ((verdict, first), files) in together(refused, why) {
        for (index, file) in files.iter().take(MOST_NAMED).enumerate() {
            let verdict = if index == 0 { verdict.to_string() } else { String::new() };
            let _infallible = writeln!(out, "  {verdict:9} {}", file.file);
        }
        if let Some(more) = files.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
            let _infallible = writeln!(out, "            and {more} more; --format json names all");
        }
        if let Some((text, remedy)) = first {
            wrapped(out, &text, 12, width);
            if !remedy.is_empty() {
                wrapped(out, &format!("instead: {remedy}"), 12, width);
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

/// Events under a title; what is the same of several addresses is said once.
fn events(out: &mut String, title: &str, events: &[Event], width: usize) {
    if events.is_empty() {
        return;
    }
    let _infallible = writeln!(out, "{title}");
    let what =
        |event: &Event| (event.kind, address(event).map_or(event.text.as_str(), |(_, what)| what).to_owned());
    for ((kind, what), same) in together(events.iter(), what) {
        let addresses: Vec<&str> =
            same.iter().filter_map(|event| address(event)).map(|(address, _)| address).collect();
        for address in &addresses {
            let _infallible = writeln!(out, "  {kind}: {address}");
        }
        if addresses.is_empty() {
            wrapped(out, &format!("{kind}: {what}"), 2, width);
        } else {
            wrapped(out, &what, 4, width);
        }
    }
}

/// The address that an event's text begins with, and what is said of it.
fn address(event: &Event) -> Option<(&str, &str)> {
    event.text.split_once(": ").filter(|(address, _)| address.contains("://"))
}

/// Items with the same key together, in the order of their first.
fn together<'i, T, K: PartialEq>(
    items: impl Iterator<Item = &'i T>,
    key: impl Fn(&T) -> K,
) -> Vec<(K, Vec<&'i T>)> {
    let mut groups: Vec<(K, Vec<&T>)> = Vec::new();
    for item in items {
        let key = key(item);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

fn summary(out: &mut String, report: &Report, width: usize) {
    let skipped: Vec<String> =
        report.skipped.iter().map(|(reason, number)| format!("{number} {reason}")).collect();
    let mut text = format!(
        "kept {}, refused {}, downloaded {} ({})",
        report.kept.len(),
        report.refused.len(),
        report.downloads,
        Size(report.bytes)
    );
    if report.dry_run {
        let bytes =
            report.planned.iter().fold(0_u64, |sum, planned| sum.saturating_add(planned.size.unwrap_or(0)));
        let _infallible = write!(text, ", would fetch {} ({})", report.planned.len(), Size(bytes));
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
    use crate::policy::{Code, Reason, Verdict};

    #[test]
    fn what_is_the_same_of_several_is_said_once() {
        let event = |text: &str| Event {
            kind: "page",
            upstream: String::new(),
            name: String::new(),
            text: text.to_owned(),
        };
        let mut out = String::new();
        let told = ["http://a.example/: no answer", "http://b.example/: no answer", "other"].map(event);
        events(&mut out, "Not reached", &told, 80);
        assert_eq!(
            out,
            "Not reached\n  page: http://a.example/\n  page: http://b.example/\n    no answer\n  page: other\n"
        );

        let reason = |text: &str| Reason {
            code: Code::PlatformTag,
            member: None,
            found: Vec::new(),
            wanted: Vec::new(),
            text: text.to_owned(),
            remedy: "look elsewhere".to_owned(),
        };
        let refused = |number: usize| Refused {
            device: "orin".to_owned(),
            requirement: "demo".to_owned(),
            file: format!("demo-{number}.whl"),
            sha256: None,
            verdict: Verdict::Refuse,
            reasons: vec![reason(if number == 1 { "another" } else { "no code" })],
            fetched: true,
        };
        let report = Report { refused: (0..11).map(refused).collect(), ..Report::default() };
        let mut out = String::new();
        block_of_device(&mut out, &report, "orin", 80);
        assert_eq!(out.matches("no code").count(), 1, "{out}");
        assert!(out.contains("  refuse    demo-0.whl\n            demo-2.whl\n"), "{out}");
        assert!(out.contains("and 2 more; --format json names all"), "{out}");
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        let mut out = String::new();
        wrapped(&mut out, "one two three", 2, 10);
        assert_eq!(out, "  one two\n    three\n");
    }
}
