//! Under which URL a client reached the mirror.

use http::HeaderMap;
use http::header::{self, HeaderName};
use http::request::Parts;

/// The longest host or prefix that is taken, in bytes: a name of the DNS has 253, and a port.
const LONGEST: usize = 260;

/// Marks, in its extensions, a request that came over the mirror's own TLS.
#[derive(Debug, Clone, Copy)]
pub(super) struct Secure;

/// Scheme, host and path before the mirror's own, without a slash at the end; none if a header holds what no URL could.
///
/// `X-Forwarded-Proto`, `X-Forwarded-Host` and `X-Forwarded-Prefix` count, the first value of each. Anybody can send them, so
/// this is only for answers that nobody else gets: those that are never cached.
///
/// `prefix` is the configured one, for proxies that send none.
pub(super) fn base_url(parts: &Parts, prefix: &str) -> Option<String> {
    let first = |name: HeaderName| {
        let value = parts.headers.get(name)?.to_str().ok()?;
        value.split(',').next().map(|value| value.trim().to_owned())
    };
    let forwarded =
        |name: &'static str| first(HeaderName::from_static(name)).filter(|value| !value.is_empty());
    let scheme = match forwarded("x-forwarded-proto").as_deref() {
        Some("https") => "https",
        None if parts.extensions.get::<Secure>().is_some() => "https",
        None | Some("http") => "http",
        Some(_) => return None,
    };
    let host = forwarded("x-forwarded-host")
        .or_else(|| first(header::HOST))
        .or_else(|| parts.uri.authority().map(ToString::to_string))?;
    let prefix = forwarded("x-forwarded-prefix").unwrap_or_else(|| prefix.to_owned());
    let prefix = prefix.trim_end_matches('/');
    (is_host(&host) && is_prefix(prefix)).then(|| format!("{scheme}://{host}{prefix}"))
}

/// The mirror's own part of a path, whether the proxy in front of it took its prefix away or not.
pub(super) fn own_path<'p>(path: &'p str, headers: &HeaderMap, prefix: &str) -> &'p str {
    let stated = headers.get("x-forwarded-prefix").and_then(|value| value.to_str().ok());
    let stated = stated.and_then(|value| value.split(',').next()).map(str::trim);
    let behind = |prefix: &str| {
        let prefix = prefix.trim_end_matches('/');
        let rest = path.strip_prefix(prefix).filter(|_| is_prefix(prefix) && !prefix.is_empty())?;
        rest.starts_with('/').then_some(rest)
    };
    stated.and_then(behind).or_else(|| behind(prefix)).unwrap_or(path)
}

/// Whether a text can be the path at which a proxy has the mirror: empty, or such as `/mirror`.
pub(crate) fn is_mount(text: &str) -> bool {
    is_prefix(text)
}

/// Whether a text is a host with or without a port: a name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    let is_address = |host: &str| {
        let inside = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        inside.is_some_and(|inside| inside.parse::<std::net::Ipv6Addr>().is_ok())
    };
    text.len() <= LONGEST
        && (is_name(host) || is_address(host))
        && port.is_none_or(|port| !port.is_empty() && port.parse::<u16>().is_ok())
}

/// Whether a text is empty or a path of plain segments.
fn is_prefix(text: &str) -> bool {
    let is_segment = |segment: &str| {
        !["", ".", ".."].contains(&segment)
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
    };
    text.is_empty()
        || (text.len() <= LONGEST
            && text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_segment)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(headers: &[(&str, &str)]) -> Option<String> {
        let request = headers
            .iter()
            .fold(http::Request::builder(), |builder, (name, value)| builder.header(*name, *value));
        base_url(&request.body(()).unwrap().into_parts().0, "")
    }

    #[test]
    fn a_prefix_may_be_there_or_not() {
        for (path, header, configured, own) in [
            ("/mirror/d/simple/", None, "/mirror", "/d/simple/"),
            ("/d/simple/", None, "/mirror", "/d/simple/"),
            ("/mirrors/d/", None, "/mirror", "/mirrors/d/"),
            ("/mirror", None, "/mirror", "/mirror"),
            ("/a/b/d/", Some("/a/b/"), "", "/d/"),
            ("/d/", Some("/a/b"), "", "/d/"),
            ("/x/../d/", Some("/x/.."), "", "/x/../d/"),
        ] {
            let mut request = http::Request::builder().uri(path).header("host", "h");
            if let Some(header) = header {
                request = request.header("x-forwarded-prefix", header);
            }
            let parts = request.body(()).unwrap().into_parts().0;
            assert_eq!(own_path(parts.uri.path(), &parts.headers, configured), own, "{path} {header:?}");
            if header.is_none() {
                assert_eq!(base_url(&parts, configured).unwrap(), "http://h/mirror");
            }
        }
    }

    #[test]
    fn tells_how_the_client_came() {
        assert_eq!(base(&[("host", "mirror:8080")]).unwrap(), "http://mirror:8080");
        assert_eq!(base(&[("host", "[::1]:80")]).unwrap(), "http://[::1]:80");
        assert_eq!(
            base(&[
                ("host", "10.0.0.1:8080"),
                ("x-forwarded-proto", "https"),
                ("x-forwarded-host", "wheels.example.org, inner"),
                ("x-forwarded-prefix", "/jetson/"),
            ])
            .unwrap(),
            "https://wheels.example.org/jetson"
        );
    }

    #[test]
    fn takes_nothing_that_no_url_could_hold() {
        for headers in [
            &[][..],
            &[("host", "evil\"x")],
            &[("host", "a/b")],
            &[("host", "a@b")],
            &[("host", "a:99999")],
            &[("host", "")],
            &[("host", "a"), ("x-forwarded-prefix", "/../x")],
            &[("host", "a"), ("x-forwarded-prefix", "//evil")],
            &[("host", "a"), ("x-forwarded-prefix", "x")],
            &[("host", "a"), ("x-forwarded-proto", "javascript")],
        ] {
            assert_eq!(base(headers), None, "{headers:?}");
        }
    }
}
