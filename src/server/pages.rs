//! Pages for people.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header;

use super::in_force::InForce;
use super::reply::Reply;

/// `GET /`: the devices, with what to copy and paste on each.
///
/// `base` is how the client reached the mirror, such as `http://mirror:8080`; it comes from the request and is escaped here.
pub(super) fn home(in_force: &InForce, base: &str) -> Reply {
    let host = base.split_once("://").map_or(base, |(_, host)| host);
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let trusted = escape(name.map_or(host, |(name, _)| name));
    let base = escape(base);
    let mut out = String::from(HEAD);
    if let Some(error) = &in_force.broken {
        let _infallible = writeln!(
            out,
            "<p><strong>The policy folder cannot be used; the last good policy is in force.</strong> {}</p>",
            escape(error)
        );
    }
    out.push_str("<p>Each device has an index of its own, which lists only wheels that run on it.</p>\n");
    for device in in_force.policy.devices() {
        let id = escape(&device.id);
        let _infallible = write!(
            out,
            "<h2 id=\"{id}\"><a href=\"{id}/simple/\">{id}</a></h2>\n\
             <p>compute capability {}, CUDA {}, Python {}, glibc {}</p>\n\
             <pre>pip install --index-url {base}/{id}/simple/ --trusted-host {trusted} torch\n\
             uv pip install --default-index {base}/{id}/simple/ torch</pre>\n",
            device.compute_capability, device.driver_cuda, device.python, device.glibc,
        );
    }
    out.push_str("</body>\n</html>\n");
    let mut reply = Reply::bytes("text/html; charset=utf-8", Bytes::from(out));
    reply.set(header::CACHE_CONTROL, "no-cache");
    reply.set(header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'");
    reply
}

const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta name=\"viewport\" content=\"width=device-width\">\n<title>jetwheel</title>\n\
    <style>body{max-width:60rem;margin:2rem auto;padding:0 1rem;font-family:sans-serif}\
    pre{background:#eee;padding:.5rem;overflow-x:auto}</style>\n</head>\n<body>\n<h1>jetwheel</h1>\n";

/// Escapes a text for HTML, inside and outside of attributes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    crate::simple::escape(&mut out, text);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_what_html_would_read() {
        assert_eq!(escape("<a b=\"c\">'&"), "&lt;a b=&quot;c&quot;&gt;&#39;&amp;");
    }
}
