//! HTML pages of PEP 503, with the attributes of PEP 592, 658 and 714, and the `meta` elements of PEP 629 and 792.
//!
//! ```html
//! <a href="../../+f/dd4/cb03a266d2ca1/demo-1.0%2Bcu126-cp310-cp310-linux_aarch64.whl#sha256=dd4cb03a…"
//!    data-requires-python="&gt;=3.8">demo-1.0+cu126-cp310-cp310-linux_aarch64.whl</a>
//! ```
//!
//! Pages differ: devpi writes the index's name before each anchor and relative links, plain listings of web servers have no
//! digests and links to parent folders, others a `<base>`. Only `a`, `base`, `meta` and `title` matter.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::elements::{Element, Piece, pieces};
use super::{
    API_VERSION, CoreMetadata, FileLink, LONGEST_URL, MOST_FILES, MOST_PROJECTS, ParsedPage, ProjectPage,
    filename_of, is_distribution, keep_hash, keep_text,
};
use crate::wheel::ProjectName;

/// Most bytes of a title or an anchor's text that are looked at.
const LONGEST_CAPTION: usize = 1024;

/// Reads a project's page, or a flat listing of files of several projects.
///
/// Any text is some page: what is no link to a wheel or a source distribution is dropped and counted.
pub fn parse_html(text: &str) -> ParsedPage {
    let mut parsed = ParsedPage::default();
    let mut status = None;
    let mut reason = None;
    let mut title: Option<String> = None;
    let mut in_title = false;
    for piece in pieces(text) {
        match piece {
            Piece::Start(tag) => match tag.name {
                "a" => match link(&tag) {
                    Some(link) if parsed.page.files.len() < MOST_FILES => parsed.page.files.push(link),
                    _ => parsed.dropped = parsed.dropped.saturating_add(1),
                },
                "base" if parsed.base.is_none() => {
                    let href = tag.attribute("href").filter(|href| href.len() <= LONGEST_URL);
                    parsed.base = href.map(str::to_owned);
                }
                "meta" => match tag.attribute("name") {
                    Some("pypi:project-status") => status = tag.attribute("content").and_then(keep_text),
                    Some("pypi:project-status-reason") => {
                        reason = tag.attribute("content").and_then(keep_text);
                    }
                    _ => {}
                },
                "title" if title.is_none() => {
                    in_title = true;
                    title = Some(String::new());
                }
                _ => {}
            },
            Piece::End("title") => in_title = false,
            Piece::Text(text) if in_title => {
                if let Some(title) = &mut title {
                    extend(title, &text);
                }
            }
            Piece::End(_) | Piece::Text(_) => {}
        }
    }
    parsed.page.name = title.as_deref().and_then(titled);
    parsed.page.status = status.filter(|status| status != "active").map(|status| (status, reason));
    parsed
}

/// Reads the list of projects at an index's root; anchors that name no project are skipped.
pub fn parse_list_html(text: &str) -> Vec<ProjectName> {
    let mut names = Vec::new();
    let mut open: Option<(Option<String>, String)> = None;
    let mut close = |open: Option<(Option<String>, String)>| {
        let Some((href, caption)) = open else { return };
        let found = caption.trim().parse().ok().or_else(|| {
            let href = href?;
            let path = href.split(['?', '#']).next()?.trim_end_matches('/');
            path.rsplit('/').next()?.parse().ok()
        });
        if let Some(name) = found
            && names.len() < MOST_PROJECTS
        {
            names.push(name);
        }
    };
    for piece in pieces(text) {
        match piece {
            Piece::Start(tag) if tag.name == "a" => {
                close(open.take());
                open = Some((tag.attribute("href").map(str::to_owned), String::new()));
            }
            Piece::End("a") => close(open.take()),
            Piece::Text(text) => {
                if let Some((_, caption)) = &mut open {
                    extend(caption, &text);
                }
            }
            Piece::Start(_) | Piece::End(_) => {}
        }
    }
    close(open.take());
    names.sort();
    names.dedup();
    names
}

/// Takes the project out of a title such as `Links for demo`, or devpi's `jp6/cu126: links for demo`.
fn titled(title: &str) -> Option<ProjectName> {
    const BEFORE: &[u8] = b"links for ";
    let at = title.as_bytes().windows(BEFORE.len()).position(|part| part.eq_ignore_ascii_case(BEFORE))?;
    title.get(at.saturating_add(BEFORE.len())..)?.trim().parse().ok()
}

fn extend(text: &mut String, piece: &str) {
    if text.len() < LONGEST_CAPTION {
        text.extend(piece.chars().take(LONGEST_CAPTION));
    }
}

/// Reads one anchor; none where it leads to no distribution.
fn link(tag: &Element) -> Option<FileLink> {
    let href = tag.attribute("href")?.trim();
    if href.len() > LONGEST_URL {
        return None;
    }
    let (url, fragment) = href.split_once('#').unwrap_or((href, ""));
    let filename = filename_of(url).filter(|name| is_distribution(name))?;
    let mut hashes = BTreeMap::new();
    for (algorithm, digest) in fragment.split('&').filter_map(|part| part.split_once('=')) {
        keep_hash(&mut hashes, algorithm, digest);
    }
    // PEP 714 renamed the attribute of PEP 658; the new name counts where both are there.
    let core_metadata = tag
        .attribute("data-core-metadata")
        .or_else(|| tag.attribute("data-dist-info-metadata"))
        .map_or(CoreMetadata::Absent, core_metadata);
    Some(FileLink {
        filename,
        url: url.to_owned(),
        hashes,
        requires_python: tag.attribute("data-requires-python").and_then(keep_text),
        size: None,
        upload_time: None,
        yanked: tag.attribute("data-yanked").map(|reason| keep_text(reason).unwrap_or_default()),
        core_metadata,
    })
}

fn core_metadata(value: &str) -> CoreMetadata {
    match value.split_once('=') {
        Some((algorithm, digest)) if algorithm.eq_ignore_ascii_case("sha256") => {
            digest.parse().map_or(CoreMetadata::Offered, CoreMetadata::Hashed)
        }
        _ if value.eq_ignore_ascii_case("false") => CoreMetadata::Absent,
        _ => CoreMetadata::Offered,
    }
}

/// Renders a project's page.
///
/// HTML has no place for sizes and times. One digest goes into the link: SHA-256 where there is one, else another that pip
/// knows. Both names of the metadata attribute are written, since pip knew only the older until 23.2.
pub fn render_html(page: &ProjectPage) -> String {
    let title = page.name.as_ref().map_or_else(|| "Links".to_owned(), |name| format!("Links for {name}"));
    // A line of a page takes some 300 bytes.
    let mut out = String::with_capacity(page.files.len().saturating_mul(400).saturating_add(512));
    begin(&mut out, &title, page.status.as_ref());
    for file in &page.files {
        out.push_str("    <a href=\"");
        escape(&mut out, &file.url);
        if let Some((algorithm, digest)) = best_hash(&file.hashes) {
            out.extend(["#", algorithm, "=", digest]);
        }
        out.push('"');
        if let Some(requires_python) = &file.requires_python {
            out.push_str(" data-requires-python=\"");
            escape(&mut out, requires_python);
            out.push('"');
        }
        let metadata = match file.core_metadata {
            CoreMetadata::Absent => None,
            CoreMetadata::Offered => Some("true".to_owned()),
            CoreMetadata::Hashed(digest) => Some(format!("sha256={digest}")),
        };
        if let Some(metadata) = metadata {
            let _infallible =
                write!(out, " data-core-metadata=\"{metadata}\" data-dist-info-metadata=\"{metadata}\"");
        }
        if let Some(reason) = &file.yanked {
            out.push_str(" data-yanked=\"");
            escape(&mut out, reason);
            out.push('"');
        }
        out.push('>');
        escape(&mut out, &file.filename);
        out.push_str("</a><br>\n");
    }
    out.push_str("  </body>\n</html>\n");
    out
}

/// Renders the list of projects at an index's root.
pub fn render_list_html(names: &[ProjectName]) -> String {
    let mut out = String::with_capacity(names.len().saturating_mul(64).saturating_add(512));
    begin(&mut out, "Simple index", None);
    for name in names {
        // A normalized name needs no escaping.
        let _infallible = writeln!(out, "    <a href=\"{name}/\">{name}</a><br>");
    }
    out.push_str("  </body>\n</html>\n");
    out
}

fn begin(out: &mut String, title: &str, status: Option<&(String, Option<String>)>) {
    out.push_str("<!DOCTYPE html>\n<html>\n  <head>\n    <meta charset=\"utf-8\">\n");
    let mut meta = |name: &str, content: &str| {
        out.extend(["    <meta name=\"", name, "\" content=\""]);
        escape(out, content);
        out.push_str("\">\n");
    };
    meta("pypi:repository-version", API_VERSION);
    if let Some((status, reason)) = status {
        meta("pypi:project-status", status);
        if let Some(reason) = reason {
            meta("pypi:project-status-reason", reason);
        }
    }
    out.push_str("    <title>");
    escape(out, title);
    out.push_str("</title>\n  </head>\n  <body>\n    <h1>");
    escape(out, title);
    out.push_str("</h1>\n");
}

fn best_hash(hashes: &BTreeMap<String, String>) -> Option<(&str, &str)> {
    ["sha256", "sha512", "sha384", "sha224", "sha1", "md5"]
        .into_iter()
        .find_map(|algorithm| Some((algorithm, hashes.get(algorithm)?.as_str())))
}

/// Writes a text as HTML, for inside and outside of attributes.
pub(super) fn escape(out: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // A reader turns a bare carriage return into a line feed.
            '\r' => out.push_str("&#13;"),
            '\0' => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
}
