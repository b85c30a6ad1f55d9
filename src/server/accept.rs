//! What a client takes: `Accept` and `Accept-Encoding` with their quality values (RFC 9110, sections 12.4.2 and 12.5).

/// The forms of an index page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Form {
    /// PEP 503, as `text/html`.
    Html,
    /// PEP 503, as PEP 691 names it.
    HtmlV1,
    /// PEP 691.
    Json,
}

impl Form {
    /// The `Content-Type`. It says version 1 whatever minor version the page has; that stands in the page.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::HtmlV1 => "application/vnd.pypi.simple.v1+html; charset=utf-8",
            Self::Json => "application/vnd.pypi.simple.v1+json",
        }
    }

    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Html => &["text/html"],
            Self::HtmlV1 => {
                &["application/vnd.pypi.simple.v1+html", "application/vnd.pypi.simple.latest+html"]
            }
            Self::Json => &["application/vnd.pypi.simple.v1+json", "application/vnd.pypi.simple.latest+json"],
        }
    }
}

/// The most items of one header that are looked at; clients send at most five.
const MOST_ITEMS: usize = 32;

/// The form that an `Accept` header asks for, none if it takes none of them.
///
/// Where two forms have the same quality, the one that is named wins over one that a wildcard takes, and JSON over HTML.
/// Wildcards alone mean a browser or a script: HTML.
pub(super) fn form(accept: Option<&str>) -> Option<Form> {
    let Some(accept) = accept.filter(|accept| !accept.trim().is_empty()) else { return Some(Form::Html) };
    let items = items(accept);
    let quality = |form: Form| {
        let group = if form == Form::Html { "text/*" } else { "application/*" };
        let named = |item: &&(String, u16)| form.names().contains(&item.0.as_str());
        let find = |name: &str| items.iter().find(|item| item.0 == name).map(|item| item.1);
        // The most specific range decides, even if it says no.
        match items.iter().filter(named).map(|item| item.1).max() {
            Some(quality) => (quality, 2),
            None => match find(group) {
                Some(quality) => (quality, 1),
                None => (find("*/*").unwrap_or(0), 0),
            },
        }
    };
    // The last of equals is taken.
    let candidates = [Form::HtmlV1, Form::Json, Form::Html];
    let (form, (quality, _)) = candidates.into_iter().map(|form| (form, quality(form))).max_by_key(
        |(form, (quality, specific))| (*quality, *specific, *specific == 2 && *form == Form::Json),
    )?;
    (quality > 0).then_some(form)
}

/// Whether an `Accept` header of a page for people prefers JSON. Wildcards mean HTML.
pub(super) fn json_over_html(accept: Option<&str>) -> bool {
    let items = items(accept.unwrap_or_default());
    let quality = |names: &[&str]| {
        let mut named = names.iter().filter_map(|name| items.iter().find(|item| item.0 == *name));
        named.next().map_or(0, |item| item.1)
    };
    let json = items.iter().find(|item| item.0 == "application/json").map_or(0, |item| item.1);
    json > 0 && json >= quality(&["text/html", "text/*", "*/*"])
}

/// Whether an `Accept-Encoding` header takes gzip.
pub(super) fn gzip(accept_encoding: Option<&str>) -> bool {
    let Some(header) = accept_encoding else { return false };
    let items = items(header);
    let named = items.iter().find(|(name, _)| name == "gzip" || name == "x-gzip");
    named.or_else(|| items.iter().find(|(name, _)| name == "*")).is_some_and(|(_, quality)| *quality > 0)
}

/// The items of a header, lower case, with their quality in thousandths. A missing quality is 1; an item whose quality is
/// no number is left out.
fn items(header: &str) -> Vec<(String, u16)> {
    let item = |text: &str| {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().filter(|name| !name.is_empty())?.to_ascii_lowercase();
        let mut quality = Some(1000);
        for part in parts {
            if let Some((key, value)) = part.split_once('=')
                && key.trim().eq_ignore_ascii_case("q")
            {
                quality = thousandths(value.trim());
            }
        }
        Some((name, quality?))
    };
    header.split(',').take(MOST_ITEMS).filter_map(item).collect()
}

/// `0.25` is 250. Digits past the third are dropped.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: u16 = match whole {
        "0" | "" => 0,
        "1" => 1000,
        _ => return None,
    };
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) || text.is_empty() || text == "." {
        return None;
    }
    let mut digits = fraction.bytes().map(|byte| u16::from(byte.wrapping_sub(b'0')));
    let fraction = [100, 10, 1].iter().fold(0, |sum, weight| sum + weight * digits.next().unwrap_or(0));
    Some((whole + fraction).min(1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The headers of pip 26.3, uv 0.13.9, poetry 2.5.1, pip 20.0.2 and Firefox, as recorded on the wire.
    #[test]
    fn real_clients_get_what_they_prefer() {
        for (accept, wanted) in [
            (
                "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html; q=0.1, text/html; q=0.01",
                Form::Json,
            ),
            (
                "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01",
                Form::Json,
            ),
            ("application/vnd.pypi.simple.v1+json, */*;q=0.1", Form::Json),
            ("text/html", Form::Html),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Form::Html),
            ("*/*", Form::Html),
            ("", Form::Html),
            ("application/vnd.pypi.simple.v1+json;q=0.1, text/html;q=0.9", Form::Html),
            ("application/vnd.pypi.simple.latest+json", Form::Json),
            ("application/vnd.pypi.simple.v1+html", Form::HtmlV1),
            ("Application/Vnd.PyPI.Simple.v1+JSON", Form::Json),
            ("text/html, application/vnd.pypi.simple.v1+json", Form::Json),
            ("application/vnd.pypi.simple.v1+json;q=0, */*", Form::Html),
        ] {
            assert_eq!(form(Some(accept)), Some(wanted), "{accept}");
        }
        assert_eq!(form(None), Some(Form::Html));
    }

    #[test]
    fn other_types_are_not_acceptable() {
        for accept in ["application/x-none", "text/html;q=0", "text/html;q=x"] {
            assert_eq!(form(Some(accept)), None, "{accept}");
        }
    }

    #[test]
    fn json_is_for_who_names_it() {
        for (accept, wanted) in [
            ("application/json", true),
            ("application/json, */*;q=0.1", true),
            ("application/json, text/html", true),
            ("application/json;q=0.5, text/html", false),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false),
            ("*/*", false),
            ("application/json;q=0", false),
            ("", false),
        ] {
            assert_eq!(json_over_html(Some(accept)), wanted, "{accept}");
        }
    }

    #[test]
    fn gzip_is_taken_unless_it_is_denied() {
        for (header, wanted) in [
            ("gzip, deflate", true),
            ("gzip, deflate, zstd", true),
            ("identity", false),
            ("*", true),
            ("gzip;q=0, *", false),
            ("GZIP;q=0.5", true),
            ("br", false),
        ] {
            assert_eq!(gzip(Some(header)), wanted, "{header}");
        }
        assert!(!gzip(None));
    }

    proptest! {
        #[test]
        fn never_panics(header in "\\PC{0,120}") {
            let _ = form(Some(&header));
            let _ = gzip(Some(&header));
        }
    }
}
