//! Paths to routes: the only place that takes a URL apart.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str};

use super::api;
use super::pages::Place;
use super::refusal::Refusal;
use crate::digest::Sha256;
use crate::wheel::ProjectName;

/// The longest path that is looked at, in bytes. The longest real one, a vendor's torch with its digest, has some 250.
const LONGEST: usize = 2048;

/// What is escaped in a segment of a path: all but the unreserved characters of RFC 3986, section 2.3.
pub(crate) const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What a path asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// A page for people.
    People(Place),
    /// `/healthz`
    Health,
    /// `/readyz`
    Ready,
    /// `/metrics`
    Metrics,
    /// `/{device}/simple/`
    Projects { device: String },
    /// `/{device}/simple/{project}/`
    Project { device: String, project: ProjectName },
    /// `/{device}/files/{sha256}/{filename}`
    Wheel { device: String, sha256: Sha256, filename: String },
    /// `/{device}/files/{sha256}/{filename}.metadata`
    Metadata { device: String, sha256: Sha256, filename: String },
    /// `/{device}/explain/{project}`
    Explain { device: String, project: ProjectName },
    /// `/{device}/resolve`
    Resolve { device: String },
    /// `/{device}/setup.sh`
    Setup { device: String },
    /// `/{device}/check.py`
    Check { device: String },
    /// `/{device}/reports`
    Reports { device: String },
    /// `/legacy/`
    Upload,
    /// `/api/v1/...`
    Api(api::Path),
    /// A spelling of another path, as a relative reference without a query.
    Moved(String),
}

impl Route {
    /// Its name in metrics.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::People(place) => place.name(),
            Self::Health => "healthz",
            Self::Ready => "readyz",
            Self::Metrics => "metrics",
            Self::Projects { .. } => "projects",
            Self::Project { .. } => "project",
            Self::Wheel { .. } => "wheel",
            Self::Metadata { .. } => "metadata",
            Self::Explain { .. } => "explain",
            Self::Resolve { .. } => "resolve",
            Self::Setup { .. } => "setup",
            Self::Check { .. } => "check",
            Self::Reports { .. } => "reports",
            Self::Upload => "upload",
            Self::Api(_) => "api",
            Self::Moved(_) => "moved",
        }
    }

    /// Whether it is for POST.
    pub(super) const fn takes_a_body(&self) -> bool {
        matches!(
            self,
            Self::Resolve { .. }
                | Self::Reports { .. }
                | Self::Upload
                | Self::Api(_)
                | Self::People(Place::Detect)
        )
    }
}

/// Reads a raw path, without its query.
///
/// Each segment is decoded once. A segment that decodes to a separator, to a dot segment or to a control character is
/// refused, so that no handler ever sees one; `+` stays `+`.
pub(super) fn parse(path: &str) -> Result<Route, Refusal> {
    if path.len() > LONGEST {
        return Err(Refusal::Malformed("the path is too long".to_owned()));
    }
    let Some(rest) = path.strip_prefix('/') else { return Err(Refusal::NoSuchPage) };
    let segments = rest.split('/').map(decode).collect::<Result<Vec<Cow<'_, str>>, Refusal>>()?;
    let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
    if let Some(route) = people(&segments) {
        return route;
    }
    match *segments {
        ["healthz"] => Ok(Route::Health),
        ["readyz"] => Ok(Route::Ready),
        ["metrics"] => Ok(Route::Metrics),
        ["legacy", ""] | ["legacy"] => Ok(Route::Upload),
        ["api", "v1", ref rest @ ..] => api::Path::parse(rest).map(Route::Api).ok_or(Refusal::NoSuchPage),
        ["", ..] => Err(Refusal::NoSuchPage),
        [_, "simple"] => Ok(Route::Moved("simple/".to_owned())),
        [device, "simple", ""] => Ok(Route::Projects { device: device.to_owned() }),
        [_, "simple", name] => Ok(Route::Moved(format!("{}/", project(name)?))),
        [device, "simple", name, ""] => {
            let project = project(name)?;
            if project.as_str() == name {
                Ok(Route::Project { device: device.to_owned(), project })
            } else {
                Ok(Route::Moved(format!("../{project}/")))
            }
        }
        [device, "files", sha256, filename] => file(device, sha256, filename),
        [device, "explain", name] | [device, "explain", name, ""] => {
            Ok(Route::Explain { device: device.to_owned(), project: project(name)? })
        }
        [device, "resolve"] | [device, "resolve", ""] => Ok(Route::Resolve { device: device.to_owned() }),
        [device, "setup.sh"] => Ok(Route::Setup { device: device.to_owned() }),
        [device, "check.py"] => Ok(Route::Check { device: device.to_owned() }),
        [device, "reports"] => Ok(Route::Reports { device: device.to_owned() }),
        _ => Err(Refusal::NoSuchPage),
    }
}

/// The pages for people. What begins their addresses is no device's id (`policy/site.rs`).
fn people(segments: &[&str]) -> Option<Result<Route, Refusal>> {
    let place = match *segments {
        [""] => Place::Home,
        ["devices" | "projects" | "snapshots"] => {
            return Some(Ok(Route::Moved(format!("{}/", segments.concat()))));
        }
        ["devices", ""] => Place::Devices,
        ["devices", id] | ["devices", id, ""] if !id.is_empty() => {
            if segments.len() > 2 {
                return Some(Ok(Route::Moved(format!("../{id}"))));
            }
            Place::Device { id: id.to_owned() }
        }
        ["projects", ""] => Place::Projects,
        ["projects", name] => {
            return Some(project(name).map(|project| Route::Moved(format!("{project}/"))));
        }
        ["projects", name, ""] => match project(name) {
            Ok(project) if project.as_str() == name => Place::Project { project },
            Ok(project) => return Some(Ok(Route::Moved(format!("../{project}/")))),
            Err(refusal) => return Some(Err(refusal)),
        },
        ["wheels", sha256, filename] => match sha256.parse() {
            Ok(sha256) => Place::Wheel { sha256, filename: filename.to_owned() },
            Err(_) => return Some(Err(Refusal::NoSuchPage)),
        },
        ["search"] => Place::Search,
        ["detect"] => Place::Detect,
        ["snapshots", ""] => Place::Snapshots,
        ["snapshots", selector] => match selector.split_once("..") {
            Some((from, to)) => Place::Diff { from: from.to_owned(), to: to.to_owned() },
            None => Place::Snapshot { selector: selector.to_owned() },
        },
        ["sync"] => Place::Sync,
        ["static", name] => Place::Static { name: name.to_owned() },
        ["projects" | "wheels" | "snapshots" | "static" | "devices" | "search" | "detect", ..] => {
            return Some(Err(Refusal::NoSuchPage));
        }
        _ => return None,
    };
    Some(Ok(Route::People(place)))
}

fn decode(segment: &str) -> Result<Cow<'_, str>, Refusal> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~@+".contains(&byte);
    if segment.bytes().all(plain) && segment != "." && segment != ".." {
        return Ok(Cow::Borrowed(segment));
    }
    let bad = |why: &str| Refusal::Malformed(format!("the path {why}"));
    let bytes = segment.as_bytes();
    let escapes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    for (at, _) in escapes {
        let digits = bytes.get(at.saturating_add(1)..at.saturating_add(3));
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err(bad("has a % that is no escape"));
        }
    }
    let text = percent_decode_str(segment).decode_utf8().map_err(|_| bad("is not UTF-8"))?;
    if text.contains(['/', '\\']) {
        return Err(bad("has an escaped separator"));
    }
    if text.contains(char::is_control) {
        return Err(bad("has a control character"));
    }
    if text == "." || text == ".." {
        return Err(bad("has a dot segment"));
    }
    Ok(text)
}

fn project(name: &str) -> Result<ProjectName, Refusal> {
    name.parse().map_err(|_| Refusal::NotAProject(name.to_owned()))
}

fn file(device: &str, sha256: &str, filename: &str) -> Result<Route, Refusal> {
    let Ok(sha256) = sha256.parse() else { return Err(Refusal::NoSuchPage) };
    let device = device.to_owned();
    match filename.strip_suffix(".metadata") {
        Some(filename) => Ok(Route::Metadata { device, sha256, filename: filename.to_owned() }),
        None => Ok(Route::Wheel { device, sha256, filename: filename.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn moved(path: &str) -> String {
        match parse(path).unwrap() {
            Route::Moved(to) => to,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn other_spellings_of_a_project_lead_to_its_page_by_relative_references() {
        assert_eq!(moved("/d/simple"), "simple/");
        assert_eq!(moved("/d/simple/Demo_Pkg.X"), "demo-pkg-x/");
        assert_eq!(moved("/d/simple/demo-pkg-x"), "demo-pkg-x/");
        assert_eq!(moved("/d/simple/demo--pkg..x/"), "../demo-pkg-x/");
        let project = "demo-pkg-x".parse().unwrap();
        assert_eq!(
            parse("/d/simple/demo-pkg-x/").unwrap(),
            Route::Project { device: "d".to_owned(), project }
        );
    }

    #[test]
    fn pages_for_people_have_one_address_each() {
        assert_eq!(moved("/projects"), "projects/");
        assert_eq!(moved("/projects/Demo.Pkg"), "demo-pkg/");
        assert_eq!(moved("/projects/Demo.Pkg/"), "../demo-pkg/");
        assert_eq!(moved("/devices/orin-jp6.2/"), "../orin-jp6.2");
        let project = "simple".parse().unwrap();
        assert_eq!(parse("/projects/simple/").unwrap(), Route::People(Place::Project { project }));
        assert_eq!(
            parse("/snapshots/stable..live").unwrap(),
            Route::People(Place::Diff { from: "stable".to_owned(), to: "live".to_owned() })
        );
        assert!(matches!(parse("/wheels/abc/x.whl"), Err(Refusal::NoSuchPage)));
        assert!(matches!(parse("/static/a/b"), Err(Refusal::NoSuchPage)));
    }

    #[test]
    fn a_plus_is_a_plus_however_it_is_written() {
        let sha256 = "0".repeat(64);
        for name in ["a+b.whl", "a%2Bb.whl", "a%2bb.whl"] {
            let Route::Wheel { filename, .. } = parse(&format!("/d/files/{sha256}/{name}")).unwrap() else {
                panic!("{name}");
            };
            assert_eq!(filename, "a+b.whl");
        }
        let Route::Metadata { filename, .. } =
            parse(&format!("/d/files/{sha256}/a%2Bb.whl.metadata")).unwrap()
        else {
            panic!("metadata");
        };
        assert_eq!(filename, "a+b.whl");
    }

    #[test]
    fn tricks_are_malformed() {
        for path in [
            "/d/simple/%2e%2e/",
            "/d/simple/..%5cx/",
            "/d/simple/a%2Fb/",
            "/d/simple/a%00/",
            "/d/simple/%zz/",
            "/d/simple/%",
            "/d/simple/%ff/",
            "/d/../x",
        ] {
            assert!(matches!(parse(path), Err(Refusal::Malformed(_))), "{path}");
        }
        assert!(matches!(parse(&format!("/d/simple/{}/", "a".repeat(5000))), Err(Refusal::Malformed(_))));
    }

    proptest! {
        #[test]
        fn never_panics_and_never_yields_a_separator(path in "[/.%a-f0-9+\\\\\u{0}-\u{7f}]{0,80}") {
            if let Ok(Route::Moved(to)) = parse(&path) {
                prop_assert!(!to.contains("://") && !to.starts_with('/'));
            }
        }
    }
}
