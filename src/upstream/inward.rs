//! What leads to the mirror's own machine, or to what only its network segment reaches, such as a cloud's metadata service.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use url::{Host, Url};

/// Whether an upstream elsewhere points inward: by address, or as `localhost`. An upstream that is on this machine itself may.
/// Where other names lead is seen when they are looked up.
pub(super) fn turns_inward(from: &Url, to: &Url) -> bool {
    is_inward(to) && !is_inward(from)
}

/// Whether a name may lead inward: where one of the configured URLs has it, or leads inward itself.
pub(super) fn may_be_here(name: &str, own: &[Url]) -> bool {
    own.iter().any(|url| is_inward(url) || url.host_str().is_some_and(|host| host.eq_ignore_ascii_case(name)))
}

/// The addresses of a name, without those that lead inward unless they may. It is asked for each connection, so that an
/// answer of the DNS that changes afterwards changes nothing.
pub(super) async fn look_up(name: &str, may_be_here: bool) -> io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = tokio::net::lookup_host((name, 0)).await?.collect();
    addresses.retain(|address| may_be_here || !is_address_inward(address.ip()));
    if addresses.is_empty() {
        return Err(io::Error::other(format!("{name} leads to the mirror's own machine")));
    }
    Ok(addresses)
}

fn is_inward(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            name == "localhost" || name.ends_with(".localhost")
        }
        Some(Host::Ipv4(ip)) => is_address_inward(ip.into()),
        Some(Host::Ipv6(ip)) => is_address_inward(ip.into()),
        None => false,
    }
}

fn is_address_inward(address: IpAddr) -> bool {
    let v4 = |ip: Ipv4Addr| ip.is_loopback() || ip.is_link_local() || ip.octets()[0] == 0;
    match address {
        IpAddr::V4(ip) => v4(ip),
        IpAddr::V6(ip) => {
            // Also by the prefix under which networks without IPv4 reach it (RFC 6052, 7915, 8215), and by the one that was for tunnels.
            let segments = ip.segments();
            let embedded = match segments {
                [0, 0, 0, 0, 0, 0 | 0xffff, ..]
                | [0, 0, 0, 0, 0xffff, 0, ..]
                | [0x64, 0xff9b, 0, 0, 0, 0, ..]
                | [0x64, 0xff9b, 1, ..] => Some((segments[6], segments[7])),
                [0x2002, high, low, ..] => Some((high, low)),
                _ => None,
            };
            let embedded =
                embedded.map(|(high, low)| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
            embedded.is_some_and(v4) || ip.is_loopback() || ip.is_unspecified() || ip.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_elsewhere_does_not_lead_to_this_machine() {
        let inward = |from: &str, to: &str| turns_inward(&from.parse().unwrap(), &to.parse().unwrap());
        for to in [
            "http://127.0.0.1:9000/x",
            "http://127.1/x",
            "http://2130706433/x",
            "http://localhost:22/",
            "http://mirror.localhost/",
            "http://0.0.0.0/",
            "http://169.254.169.254/latest/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[fe80::1]/",
            "http://0.1.2.3/",
            "http://localhost./",
            "http://[::127.0.0.1]/",
            "http://[64:ff9b::a9fe:a9fe]/",
            "http://[2002:7f00:1::]/",
            "http://[::ffff:0:127.0.0.1]/",
            "http://[64:ff9b:1::127.0.0.1]/",
            "http://good.test@127.0.0.1/",
            "http://127.0.0.1.:80/",
            "http://0x7f.1/",
        ] {
            assert!(inward("https://a.test/simple/", to), "{to}");
            assert!(!inward("http://127.0.0.1:3141/root/", to), "{to}");
        }
        assert!(!inward("https://a.test/", "https://b.test/x"));
        assert!(!inward("https://a.test/", "http://10.0.0.5/x"), "a site's own network is no secret to it");
    }

    /// `localhost` stands here for any name that leads to this machine: a link with it is not followed that far.
    #[tokio::test]
    async fn a_name_leads_to_this_machine_only_where_it_is_configured() {
        let own = |urls: &[&str]| urls.iter().map(|url| url.parse().unwrap()).collect::<Vec<Url>>();
        for (urls, may) in [
            (own(&["https://a.test/simple/"]), false),
            (own(&["https://a.test/simple/", "http://LOCALHOST:3141/"]), true),
            (own(&["http://127.0.0.1:3141/"]), true),
            (own(&[]), false),
        ] {
            assert_eq!(may_be_here("localhost", &urls), may, "{urls:?}");
            assert_eq!(look_up("localhost", may).await.is_ok(), may, "{urls:?}");
        }
        assert!(!may_be_here("b.test", &own(&["https://a.test/"])));
        let refused = look_up("localhost", false).await.unwrap_err();
        assert_eq!(refused.to_string(), "localhost leads to the mirror's own machine");
    }
}
