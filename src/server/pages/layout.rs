//! What all pages share: head, navigation, and how sizes, times and links are written.

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};
use percent_encoding::{AsciiSet, utf8_percent_encode};

use crate::server::path::ESCAPED;
use crate::wording::counted;

/// What is escaped in a segment of a URL. `@` parts a device from its snapshot, and is easier read as it is.
const SEGMENT: &AsciiSet = &ESCAPED.remove(b'@');

/// Whether a page goes on changing while it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Live {
    /// It stays as it is.
    No,
    /// It is asked for again every other second: by the script, and by the browser itself where no script runs.
    Yes,
}

/// The pages that every page leads to.
const NAVIGATION: [(&str, &str); 5] = [
    ("", "Overview"),
    ("projects/", "Projects"),
    ("snapshots/", "Snapshots"),
    ("sync", "Sync"),
    ("detect", "What is my device? What is this error?"),
];

/// A whole page.
pub(super) fn page(root: &str, title: &str, live: Live, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " – jetwheel" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href={ (root) "static/style.css" };
                @if live == Live::Yes {
                    script src={ (root) "static/live.js" } defer {}
                    noscript { meta http-equiv="refresh" content="2"; }
                }
            }
            body {
                a.skip href="#content" { "Skip to the content" }
                header {
                    nav aria-label="Pages" {
                        a.brand href=(root) { "jetwheel" }
                        ul {
                            @for (path, name) in NAVIGATION { li { a href={ (root) (path) } { (name) } } }
                        }
                    }
                    (search(root, ""))
                }
                main #content tabindex="-1" {
                    h1 { (title) }
                    (body)
                }
                footer { p { "The same as JSON: ask for this address with " code { "Accept: application/json" } "." } }
            }
        }
    }
}

/// The field to search in.
pub(super) fn search(root: &str, asked: &str) -> Markup {
    html! {
        form.search role="search" action={ (root) "search" } method="get" {
            label { span { "Project, file, digest, device or snapshot" } input type="search" name="q" value=(asked) maxlength="200"; }
            button type="submit" { "Search" }
        }
    }
}

/// A table that may be wider than the page, and then scrolls by itself, also by keyboard.
pub(super) fn wide(label: &str, table: &Markup) -> Markup {
    html! { div.wide role="region" aria-label=(label) tabindex="0" { (table) } }
}

/// Lines to copy.
pub(super) fn copy(label: &str, text: &str) -> Markup {
    html! { pre tabindex="0" role="region" aria-label=(label) { code { (text) } } }
}

/// Links to the pieces of a long list.
pub(super) fn pieces(query: &str, from: usize, most: usize, total: usize) -> Markup {
    let (to, before) = (from.saturating_add(most).min(total), from.saturating_sub(most));
    html! {
        @if total > most {
            nav.pieces aria-label="Pieces of the list" {
                span { (from.saturating_add(1)) " to " (to) " of " (total) }
                @if from > 0 { a rel="prev" href={ "?" (query) "from=" (before) } { "← Before" } }
                @if to < total { a rel="next" href={ "?" (query) "from=" (to) } { "Next →" } }
            }
        }
    }
}

/// A segment of a URL.
pub(super) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// The page of a wheel, from the root.
pub(super) fn wheel_path(sha256: &impl std::fmt::Display, file: &str) -> String {
    format!("wheels/{sha256}/{}", segment(file))
}

/// A time with how long ago it was.
pub(super) fn time(text: &str) -> Markup {
    let age = text.parse::<Timestamp>().ok().map(|at| seconds_since(at, Timestamp::now()));
    let shown = text.get(..16).map_or(text.to_owned(), |day| day.replace('T', " "));
    html! { time datetime=(text) { (shown) " UTC" @if let Some(age) = age { " (" (span(age)) " ago)" } } }
}

/// Seconds between two times; none below zero, for clocks differ.
pub(super) fn seconds_since(at: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(now.as_second().saturating_sub(at.as_second())).unwrap_or(0)
}

fn span(seconds: u64) -> String {
    let (number, unit) = match seconds {
        0..60 => (seconds, "second"),
        60..3600 => (seconds / 60, "minute"),
        3600..172_800 => (seconds / 3600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    counted(number, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_spans_and_segments() {
        assert_eq!(
            [span(1), span(119), span(7200), span(999_999)],
            ["1 second", "1 minute", "2 hours", "11 days"]
        );
        assert_eq!(segment("a+b/\"<x>?.whl"), "a%2Bb%2F%22%3Cx%3E%3F.whl");
        let marked = page("./", "<b>", Live::No, &html! { p { ("<script>") } }).into_string();
        assert!(marked.contains("&lt;script&gt;") && !marked.contains("<b>"), "{marked}");
    }
}
