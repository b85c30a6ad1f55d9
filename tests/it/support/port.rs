//! Ports for servers that have to be told one and cannot say which they chose.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;

/// How many ports there are to choose from.
const PORTS: u16 = 8_000;

/// What keeps the ports of this process from the other tests.
static TAKEN: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A port of the loopback that is this process's until it ends, also while nobody listens there.
///
/// It lies below those that the kernel gives to whoever asks for any, so that no connection takes it meanwhile; the other
/// tests see by a socket of its name (`unix(7)`, abstract) that it is taken.
pub(crate) fn port() -> u16 {
    let range = fs_err::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let lowest: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
    let first = lowest.saturating_sub(PORTS).max(10_000);
    let start = u16::try_from(std::process::id() % u32::from(PORTS)).unwrap();
    let mut ports = (0..PORTS).map(|step| first + (start + step * 7) % PORTS);
    let found = ports.find_map(|port| {
        let name = SocketAddr::from_abstract_name(format!("jetwheel tests port {port}")).unwrap();
        let taken = UnixListener::bind_addr(&name).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
        Some((port, taken))
    });
    let (port, taken) = found.expect("a port that nobody has");
    TAKEN.lock().unwrap().push(taken);
    port
}
