//! How much a single client may ask for: connections at once, and requests over time.
//!
//! A client is an IPv4 address, or the first 64 bits of an IPv6 address, which is what one host or one site has. Behind a proxy that
//! the configuration trusts it is the address that the proxy states.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderMap;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The most clients whose requests are counted one by one; whoever comes beyond them is counted with all others that do.
const MOST_CLIENTS: usize = 8192;

/// How often the table is searched for clients that have their whole burst again, at most.
const SWEEP: Duration = Duration::from_secs(1);

/// The longest time that a client is told to wait, in seconds. pip and uv do wait that long.
const LONGEST_WAIT: f64 = 30.0;

/// The most addresses of `X-Forwarded-For` that are looked at, from the last one on.
const MOST_HOPS: usize = 16;

/// How often the log is told that connections were turned away.
const TELL: Duration = Duration::from_secs(10);

/// How long a client that is turned away has to take that, and how much of its request is read before.
const FAREWELL: Duration = Duration::from_secs(1);
const FAREWELL_HEAD: usize = 8 << 10;

/// What bounds a single client; unbounded unless it is set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClientLimits {
    /// Connections at once.
    pub connections: Option<usize>,
    /// Requests over time.
    pub requests: Option<Rate>,
    /// Proxies that are believed in what they say of the client, and that are not bounded themselves.
    pub trusted_proxies: Vec<Network>,
}

/// Requests over time: a bucket of `burst` that fills by `per_second`. Both are positive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// How many in each second, in the long run.
    pub per_second: f64,
    /// How many at once.
    pub burst: f64,
}

/// A range of addresses, such as `10.0.0.0/8`, or a single one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no address or network, expected one such as 10.0.0.5 or 10.0.0.0/8");
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
        if bits > most { Err(wrong()) } else { Ok(Self { address, bits }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.bits)
    }
}

impl Network {
    /// Whether an address is in it.
    pub fn contains(self, address: IpAddr) -> bool {
        let same = |left: u128, right: u128, of: u32| {
            let dropped = of.saturating_sub(u32::from(self.bits));
            left.checked_shr(dropped).unwrap_or(0) == right.checked_shr(dropped).unwrap_or(0)
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => same(own.to_bits().into(), other.to_bits().into(), 32),
            (IpAddr::V6(own), IpAddr::V6(other)) => same(own.to_bits(), other.to_bits(), 128),
            _ => false,
        }
    }
}

/// Who sent a request, as the log names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Whoever made the connection.
    Peer(SocketAddr),
    /// Whoever a trusted proxy names.
    Behind(IpAddr),
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(address) => address.fmt(out),
            Self::Behind(address) => address.fmt(out),
        }
    }
}

/// What is counted of each client.
#[derive(Debug, Default)]
pub(super) struct Clients {
    limits: ClientLimits,
    buckets: Mutex<Buckets>,
    open: Arc<Mutex<Open>>,
}

/// Connections at once, by client: no more entries than there are connections.
#[derive(Debug, Default)]
struct Open {
    counts: HashMap<IpAddr, usize>,
    told: Option<Instant>,
}

/// A connection that counts until it is dropped.
#[derive(Debug)]
pub(super) struct Counted(Option<(Arc<Mutex<Open>>, IpAddr)>);

impl Drop for Counted {
    fn drop(&mut self) {
        let Some((open, client)) = &self.0 else { return };
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.counts.get_mut(client) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.counts.remove(client);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Buckets {
    of: HashMap<IpAddr, Bucket>,
    others: Option<Bucket>,
    swept: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    /// How many requests were told when to come again, and may not have done so yet: the next one is told a later time.
    promised: f64,
    at: Instant,
}

impl Bucket {
    fn full(rate: Rate, now: Instant) -> Self {
        Self { left: rate.burst, promised: 0.0, at: now }
    }

    fn fill(&mut self, rate: Rate, now: Instant) {
        let grown = now.saturating_duration_since(self.at).as_secs_f64() * rate.per_second;
        self.left = (self.left + grown).min(rate.burst);
        self.promised = (self.promised - grown).max(0.0);
        self.at = now;
    }

    /// Takes one request, or says in how many seconds to come again.
    fn take(&mut self, rate: Rate, now: Instant) -> Result<(), f64> {
        self.fill(rate, now);
        if self.left >= 1.0 {
            self.left -= 1.0;
            return Ok(());
        }
        let wait = (1.0 - self.left + self.promised) / rate.per_second;
        if wait < LONGEST_WAIT {
            self.promised += 1.0;
        }
        Err(wait.min(LONGEST_WAIT))
    }
}

impl Buckets {
    fn take(&mut self, client: IpAddr, rate: Rate, now: Instant) -> Result<(), f64> {
        let known = self.of.contains_key(&client);
        let due = self.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= SWEEP);
        if !known && self.of.len() >= MOST_CLIENTS && due {
            self.swept = Some(now);
            self.of.retain(|_, bucket| {
                bucket.fill(rate, now);
                bucket.left < rate.burst
            });
        }
        let bucket = if known || self.of.len() < MOST_CLIENTS {
            self.of.entry(client).or_insert_with(|| Bucket::full(rate, now))
        } else {
            self.others.get_or_insert_with(|| Bucket::full(rate, now))
        };
        bucket.take(rate, now)
    }
}

impl Clients {
    pub(super) fn new(limits: ClientLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        self.limits.trusted_proxies.iter().any(|network| network.contains(address))
    }

    /// Counts a connection; none where its client has as many as it may.
    pub(super) fn connect(&self, from: IpAddr) -> Option<Counted> {
        let Some(most) = self.limits.connections.filter(|_| !self.is_trusted(from)) else {
            return Some(Counted(None));
        };
        let client = client_of(from);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.counts.get(&client).copied().unwrap_or(0);
        if count < most {
            open.counts.insert(client, count.saturating_add(1));
            return Some(Counted(Some((Arc::clone(&self.open), client))));
        }
        if open.told.is_none_or(|told| told.elapsed() >= TELL) {
            open.told = Some(Instant::now());
            tracing::warn!(%client, limit = most, "a connection was turned away: its client has as many as it may");
        }
        None
    }

    /// Who sent a request: the last one that `X-Forwarded-For` names and that is no trusted proxy, where the connection is by one.
    pub(super) fn origin(&self, from: SocketAddr, headers: &HeaderMap) -> Origin {
        if !self.is_trusted(from.ip()) {
            return Origin::Peer(from);
        }
        let mut origin = Origin::Peer(from);
        let values = headers.get_all("x-forwarded-for").iter().rev();
        let hops = values.flat_map(|value| value.to_str().unwrap_or("unreadable").rsplit(','));
        for hop in hops.take(MOST_HOPS) {
            // What stands before something that is no address may be by anybody.
            let Some(address) = hop_address(hop.trim()) else { break };
            origin = Origin::Behind(address);
            if !self.is_trusted(address) {
                break;
            }
        }
        origin
    }

    /// Counts a request; fails with the seconds after which to come again.
    pub(super) fn request(&self, origin: Origin) -> Result<(), u64> {
        let Some(rate) = self.limits.requests else { return Ok(()) };
        let address = match origin {
            Origin::Peer(address) => address.ip(),
            Origin::Behind(address) => address,
        };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.take(client_of(address), rate, Instant::now()).map_err(|wait| {
            // At least one, at most `LONGEST_WAIT`.
            Duration::try_from_secs_f64(wait.ceil().max(1.0)).map_or(1, |wait| wait.as_secs())
        })
    }
}

/// The address by which a client counts.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        address @ IpAddr::V4(_) => address,
    }
}

/// An address with or without a port, an IPv6 one with or without brackets.
fn hop_address(text: &str) -> Option<IpAddr> {
    let plain = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = plain.parse().or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()));
    address.ok().map(|address| address.to_canonical())
}

/// Tells a client that it has too many connections, without TLS alone, and ends this one.
pub(super) async fn turn_away(mut stream: TcpStream) {
    let say = async {
        // Read first: a connection that is closed with something unread is reset, and the client sees no answer.
        let mut head = vec![0; FAREWELL_HEAD];
        let _whatever_it_is = stream.read(&mut head).await;
        let _unheard = stream.write_all(TURNED_AWAY.as_bytes()).await;
        let _unheard = stream.shutdown().await;
    };
    let _too_slow = tokio::time::timeout(FAREWELL, say).await;
}

const TURNED_AWAY: &str = "HTTP/1.1 429 Too many connections at once from this address\r\nRetry-After: 1\r\n\
    Content-Type: text/plain; charset=utf-8\r\nContent-Length: 58\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n\
    too many connections at once from this address: try again\n";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn clients(trusted: &[&str]) -> Clients {
        let trusted_proxies = trusted.iter().map(|text| text.parse().unwrap()).collect();
        Clients::new(ClientLimits { trusted_proxies, ..ClientLimits::default() })
    }

    #[test]
    fn networks_hold_their_addresses() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.1.2", "11.0.0.0"),
            ("10.0.0.5", "10.0.0.5", "10.0.0.6"),
            ("10.0.0.5", "::ffff:10.0.0.5", "::ffff:10.0.0.6"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("fd00::/8", "fdff::1", "fe00::1"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
        ] {
            let network: Network = network.parse().unwrap();
            assert!(network.contains(address(inside)) && !network.contains(address(outside)), "{network}");
        }
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0/8", "mirror", "10.0.0.0/"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_client_behind_proxies_is_the_last_that_none_of_them_is() {
        let clients = clients(&["127.0.0.1", "10.0.0.0/8"]);
        let origin = |from: &str, values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-forwarded-for", value.parse().unwrap());
            }
            clients.origin(SocketAddr::new(address(from), 9), &headers).to_string()
        };
        assert_eq!(origin("192.0.2.1", &["198.51.100.7"]), "192.0.2.1:9", "anybody can say so");
        assert_eq!(origin("127.0.0.1", &[]), "127.0.0.1:9");
        assert_eq!(origin("127.0.0.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(origin("127.0.0.1", &["1.1.1.1, 198.51.100.7, 10.1.2.3"]), "198.51.100.7");
        assert_eq!(origin("127.0.0.1", &["1.1.1.1", "198.51.100.7:443", "10.1.2.3"]), "198.51.100.7");
        assert_eq!(origin("127.0.0.1", &["[2001:db8::1]:443"]), "2001:db8::1");
        assert_eq!(origin("127.0.0.1", &["1.1.1.1, unknown, 10.1.2.3"]), "10.1.2.3");
        assert_eq!(origin("::ffff:127.0.0.1", &["2001:db8::2"]), "2001:db8::2");
    }

    #[test]
    fn a_bucket_lets_a_burst_through_and_then_its_rate() {
        let rate = Rate { per_second: 2.0, burst: 3.0 };
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        let mut take = |client: &str, after_ms: u64| {
            buckets.take(client_of(address(client)), rate, start + Duration::from_millis(after_ms))
        };
        for _ in 0..3 {
            assert_eq!(take("2001:db8::1", 0), Ok(()));
        }
        // Whoever comes at once is told a time of its own.
        let told: Vec<f64> = (0..3).map(|_| take("2001:db8::2", 0).unwrap_err()).collect();
        assert_eq!(format!("{told:?}"), "[0.5, 1.0, 1.5]", "the same 64 bits are one client");
        assert_eq!(take("2001:db8:0:1::1", 0), Ok(()), "another client");
        assert_eq!(take("2001:db8::1", 500), Ok(()));
        assert!(take("2001:db8::1", 500).is_err());
        assert_eq!(take("2001:db8::1", 1000), Ok(()));
        for _ in 0..1000 {
            let told = take("2001:db8::1", 1000).unwrap_err();
            assert!(told <= LONGEST_WAIT, "{told}");
        }
    }

    #[test]
    fn the_table_is_bounded_and_forgets_those_who_rest() {
        let rate = Rate { per_second: 1.0, burst: 1.0 };
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        let nth = |n: usize| IpAddr::V4(u32::try_from(n).unwrap().into());
        for n in 0..MOST_CLIENTS {
            assert_eq!(buckets.take(nth(n), rate, start), Ok(()));
        }
        assert_eq!(buckets.take(nth(MOST_CLIENTS), rate, start), Ok(()), "all others have one bucket");
        assert!(buckets.take(nth(MOST_CLIENTS + 1), rate, start).is_err());
        assert_eq!(buckets.of.len(), MOST_CLIENTS);
        let later = start + Duration::from_secs(2);
        assert_eq!(buckets.take(nth(MOST_CLIENTS + 2), rate, later), Ok(()));
        assert_eq!(buckets.of.len(), 1);
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(bytes in proptest::collection::vec(32_u8..=255, 0..80)) {
            let mut headers = HeaderMap::new();
            if let Ok(value) = http::HeaderValue::from_bytes(&bytes) {
                headers.insert("x-forwarded-for", value);
            }
            let _whoever = clients(&["0.0.0.0/0"]).origin(SocketAddr::new(address("127.0.0.1"), 1), &headers);
        }
    }
}
