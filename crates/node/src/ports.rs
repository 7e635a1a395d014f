//! Connections to ports of a pod: only to sockets on which a process of the pod listens.
//!
//! Pods share the machine's network, so an address and a port say nothing of whose they are: the same port may be the API
//! server's, a database's, or a cloud's metadata service. So neither the pod's object, which others may write, nor the address
//! decides, but the kernel's table of sockets and whether one of the pod's processes holds the one that listens.

use crate::poddir::PodDir;
use crate::usage::network;
use crate::usage::process::Table;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::TcpStream;

/// The kernel's number of the state in which a socket listens.
const LISTEN: &str = "0A";

/// A socket that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listening {
    at: SocketAddr,
    inode: u64,
}

/// Connects to a port on which a process of this pod listens.
///
/// # Errors
/// `ConnectionRefused`: none does, or the pod does not run; else what connecting says.
pub async fn connect(dir: &PodDir, port: u16) -> io::Result<TcpStream> {
    let dir = dir.clone();
    // reads hundreds of small files
    let found = tokio::task::spawn_blocking(move || addresses(&dir, port)).await.map_err(io::Error::other)??;
    let mut failed = refused(port);
    for address in found {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn refused(port: u16) -> io::Error {
    let why = format!("connection refused: no process of the pod listens on port {port}");
    io::Error::new(io::ErrorKind::ConnectionRefused, why)
}

/// Where the pod's processes listen on this port, as something to connect to.
fn addresses(dir: &PodDir, port: u16) -> io::Result<Vec<SocketAddr>> {
    let (Some(shim), Some(launch)) = (dir.shim()?, dir.read_launch()?) else { return Err(refused(port)) };
    let own: Ipv4Addr = launch.address.parse().map_err(io::Error::other)?;
    let mut listening: Vec<Listening> = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        // a machine may have no IPv6
        listening.extend(parse(&fs::read_to_string(table).unwrap_or_default(), port));
    }
    if listening.is_empty() {
        return Err(refused(port));
    }
    let processes = Table::read();
    // of a process that has ended, or is not ours to look at, none is known
    let sockets = |pid| network::inodes(pid).unwrap_or_default();
    let held: BTreeSet<u64> = processes.tree(shim).iter().flat_map(|process| sockets(process.id.pid)).collect();
    Ok(listening.iter().filter(|socket| held.contains(&socket.inode)).map(|socket| reachable(socket.at, own)).collect())
}

/// An address to connect to: a socket of all addresses is met at the pod's own.
fn reachable(at: SocketAddr, own: Ipv4Addr) -> SocketAddr {
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => own.into(),
        // also for IPv4, unless the socket was told otherwise, which the table does not show: IPv6 is always right
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V6(ip) => ip.to_ipv4_mapped().map_or(ip.into(), IpAddr::V4),
        ip @ IpAddr::V4(_) => ip,
    };
    SocketAddr::new(ip, at.port())
}

/// The sockets of `/proc/net/tcp` or `tcp6` that listen on a port.
fn parse(table: &str, port: u16) -> impl Iterator<Item = Listening> + '_ {
    table.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_ascii_whitespace();
        let (address, number) = fields.nth(1)?.split_once(':')?;
        let here = u16::from_str_radix(number, 16).ok()? == port;
        if fields.nth(1)? != LISTEN || !here {
            return None;
        }
        let inode = fields.nth(5)?.parse().ok()?;
        Some(Listening { at: SocketAddr::new(parse_ip(address)?, port), inode })
    })
}

/// An address of the table: words of 32 bits, each written as a number of the machine's.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(text.get(at..at.checked_add(8)?)?, 16).ok()?.to_ne_bytes());
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn tables_of_sockets() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0 100 0 0 10 0\n\
            1: 0100007F:1F90 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 222 1 0 100 0 0 10 0\n\
            2: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1 0 100 0 0 10 0\n\
            3: torn";
        let found: Vec<Listening> = parse(table, 8080).collect();
        assert_eq!(found, [Listening { at: "127.0.0.1:8080".parse().unwrap(), inode: 111 }]);
        assert_eq!(parse_ip("0000000000000000FFFF00000100007F"), "::ffff:127.0.0.1".parse().ok());
        for wrong in ["", "0", "é100007F", "0100007F0", &"é".repeat(16)] {
            assert_eq!(parse_ip(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_this_process_listens_on_is_found_as_its_own() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            // a machine may have no IPv6
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let at = listener.local_addr().unwrap();
            let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
            let found: Vec<Listening> = tables.iter().flat_map(|table| parse(table, at.port())).collect();
            let held = network::inodes(std::process::id().cast_signed()).unwrap();
            assert!(found.iter().any(|socket| socket.at == at && held.contains(&socket.inode)), "{at}: {found:?}");
            std::net::TcpStream::connect(reachable(at, Ipv4Addr::new(127, 9, 8, 7))).unwrap();
        }
    }

    #[tokio::test]
    async fn a_pod_that_does_not_run_has_no_ports() {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = connect(&PodDir::of(dir.path(), "uid"), port).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
