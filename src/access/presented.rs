//! What a request presents: the `Authorization` field.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::token::Secret;

/// What a request presents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presented {
    /// A secret: the password of HTTP Basic, or what stands behind Bearer.
    Secret(Secret),
    /// Something that is neither.
    Malformed,
}

impl Presented {
    /// Reads an `Authorization` field.
    ///
    /// pip, uv and twine send a token as the password of HTTP Basic (RFC 7617), with the user name `__token__` by custom; any
    /// user name is taken, and where there is no password the user name itself is the token, as in `https://TOKEN@host/`.
    pub fn parse(authorization: &[u8]) -> Self {
        Self::read(authorization).map_or(Self::Malformed, |secret| Self::Secret(Secret::presented(secret)))
    }

    fn read(authorization: &[u8]) -> Option<String> {
        let text = std::str::from_utf8(authorization).ok()?.trim();
        let (scheme, rest) = text.split_once(' ')?;
        let rest = rest.trim();
        if scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("token") {
            return Some(rest.to_owned()).filter(|secret| !secret.is_empty());
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let pair = String::from_utf8(STANDARD.decode(rest).ok()?).ok()?;
        let (user, password) = pair.split_once(':').unwrap_or((&pair, ""));
        let secret = if password.is_empty() { user } else { password };
        Some(secret.to_owned()).filter(|secret| !secret.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn secret(field: &str) -> Option<String> {
        match Presented::parse(field.as_bytes()) {
            Presented::Secret(secret) => Some(secret.reveal().to_owned()),
            Presented::Malformed => None,
        }
    }

    /// Encoded by `printf ... | base64`.
    #[test]
    fn reads_what_clients_send() {
        assert_eq!(secret("Basic X190b2tlbl9fOmpldHdoZWVsX3g6eQ==").unwrap(), "jetwheel_x:y");
        assert_eq!(secret("basic amV0d2hlZWxfeDo=").unwrap(), "jetwheel_x");
        assert_eq!(secret("basic amV0d2hlZWxfeA==").unwrap(), "jetwheel_x");
        assert_eq!(secret("Bearer jetwheel_x").unwrap(), "jetwheel_x");
        for bad in ["", "Basic", "Basic !!", "Basic Og==", "Digest x", "Bearer ", "jetwheel_x"] {
            assert_eq!(secret(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _whatever_it_is = Presented::parse(&bytes);
        }
    }
}
