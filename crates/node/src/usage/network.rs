//! Bytes that sockets of TCP have carried, from the kernel's socket diagnostics (sock_diag(7)).
//!
//! The processes of all pods share the machine's network, so interfaces tell nothing of a pod; its sockets do. Those that
//! closed since the last look are not counted any more.

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// `SOCK_DIAG_BY_FAMILY`, of linux/sock_diag.h.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP`, `NLMSG_ERROR` and `NLMSG_DONE`, of linux/netlink.h.
const REQUEST_DUMP: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `INET_DIAG_INFO`, of linux/inet_diag.h: a `tcp_info`.
const INFO: u16 = 2;
/// States of TCP in which a socket has no owner or carries nothing: TIME_WAIT, LISTEN, NEW_SYN_RECV; of net/tcp_states.h.
const STATES_LEFT_OUT: u32 = 1 << 6 | 1 << 10 | 1 << 12;
/// Bytes of a message's head (`nlmsghdr`), and of what is said of a socket before its attributes (`inet_diag_msg`).
const HEAD: usize = 16;
const ABOUT: usize = 72;
/// Where an `inet_diag_msg` has the socket's cookie and inode, and a `tcp_info` the bytes acknowledged and received.
const COOKIE: usize = 44;
const INODE: usize = 68;
const ACKED: usize = 120;
const RECEIVED: usize = 128;
/// The kernel answers at once, in parts of at most 32 KiB.
const TIMEOUT_SECS: i64 = 1;
const PART_BYTES_MAX: usize = 64 << 10;

/// What a socket has carried since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Its number, which never comes again while the machine runs.
    pub cookie: u64,
    /// Bytes that the other side has acknowledged.
    pub sent: u64,
    pub received: u64,
}

/// The machine's sockets of TCP, by inode; `None` where the kernel does not say.
pub fn sockets() -> Option<BTreeMap<u64, Socket>> {
    let mut out = BTreeMap::new();
    let dumped = dump(AddressFamily::Inet as u8, &mut out);
    dumped.inspect_err(|error| tracing::debug!(%error, "the kernel does not tell of sockets")).ok()?;
    // refused where the machine has no IPv6, and so no such sockets
    let _ = dump(AddressFamily::Inet6 as u8, &mut out);
    Some(out)
}

fn dump(family: u8, out: &mut BTreeMap<u64, Socket>) -> io::Result<()> {
    let netlink: OwnedFd =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag)?;
    setsockopt(&netlink, sockopt::ReceiveTimeout, &TimeVal::new(TIMEOUT_SECS, 0))?;
    send(netlink.as_raw_fd(), &request(family), MsgFlags::empty())?;
    let mut part = vec![0; PART_BYTES_MAX];
    loop {
        let length = match recv(netlink.as_raw_fd(), &mut part, MsgFlags::empty()) {
            Err(Errno::EINTR) => continue,
            length => length?,
        };
        if length == 0 || read(part.get(..length).unwrap_or_default(), out)? {
            return Ok(());
        }
    }
}

/// Asks for all sockets of a family: an `nlmsghdr` and an `inet_diag_req_v2`.
fn request(family: u8) -> Vec<u8> {
    const LENGTH: u32 = 72;
    let mut out = Vec::new();
    out.extend(LENGTH.to_ne_bytes());
    out.extend(BY_FAMILY.to_ne_bytes());
    out.extend(REQUEST_DUMP.to_ne_bytes());
    out.extend([0; 8]); // sequence number and port: there is one request, and the answer comes to its sender
    out.extend([family, SockProtocol::Tcp as u8, 1 << (INFO - 1), 0]);
    out.extend((!STATES_LEFT_OUT).to_ne_bytes());
    out.resize(LENGTH as usize, 0); // any address
    out
}

/// Reads a part of the answer; true where it is the last.
fn read(mut part: &[u8], out: &mut BTreeMap<u64, Socket>) -> io::Result<bool> {
    while let (Some(length), Some(kind)) = (u32_at(part, 0), u16_at(part, 4)) {
        let length = length as usize;
        let Some(body) = part.get(HEAD..length) else { return Err(io::ErrorKind::InvalidData.into()) };
        match kind {
            DONE => return Ok(true),
            ERROR => {
                let code = u32_at(body, 0).map_or(0, u32::cast_signed);
                return Err(io::Error::from_raw_os_error(code.saturating_neg()));
            }
            _ => out.extend(about(body)),
        }
        part = part.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// A socket's inode and what it has carried; `None` where nobody owns it, or an old kernel says less.
fn about(body: &[u8]) -> Option<(u64, Socket)> {
    let inode = u32_at(body, INODE).filter(|inode| *inode != 0)?;
    let cookie = u64_at(body, COOKIE)?;
    let mut attributes = body.get(ABOUT..)?;
    while let (Some(length), Some(kind)) = (u16_at(attributes, 0), u16_at(attributes, 2)) {
        let value = attributes.get(4..length.into())?;
        if kind == INFO {
            let socket = Socket { cookie, sent: u64_at(value, ACKED)?, received: u64_at(value, RECEIVED)? };
            return Some((inode.into(), socket));
        }
        attributes = attributes.get(usize::from(length).next_multiple_of(4)..)?;
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_ne_bytes)
}

/// The inodes of a process's sockets of all kinds; `None` where they may not be seen.
pub fn inodes(pid: i32) -> Option<Vec<u64>> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    Some(links.filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn carried(stream: &TcpStream) -> Socket {
        let inode = nix::sys::stat::fstat(stream.as_fd()).unwrap().st_ino;
        assert!(inodes(std::process::id().cast_signed()).unwrap().contains(&inode));
        sockets().expect("this kernel tells of sockets")[&inode]
    }

    /// Both ends of a connection over each family's loopback, where the machine has it.
    #[test]
    fn what_a_connection_carries() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut other, _) = listener.accept().unwrap();
            let before = (carried(&one), carried(&other));
            one.write_all(&[7; 50_000]).unwrap();
            other.read_exact(&mut [0; 50_000]).unwrap();
            other.write_all(&[7; 300]).unwrap();
            one.read_exact(&mut [0; 300]).unwrap();
            let after = (carried(&one), carried(&other));
            assert_eq!(after.0.cookie, before.0.cookie);
            assert_ne!(after.0.cookie, after.1.cookie);
            // the answer acknowledges what it answers
            assert_eq!((after.0.sent - before.0.sent, after.0.received - before.0.received), (50_000, 300));
            assert_eq!(after.1.received - before.1.received, 50_000);
        }
    }

    #[test]
    fn what_is_cut_off_is_no_answer() {
        let mut out = BTreeMap::new();
        let mut part = vec![0; HEAD];
        part[..4].copy_from_slice(&400_u32.to_ne_bytes());
        assert_eq!(read(&part, &mut out).unwrap_err().kind(), io::ErrorKind::InvalidData);
        part[..4].copy_from_slice(&0_u32.to_ne_bytes());
        assert!(read(&part, &mut out).is_err(), "a message is not shorter than its head");
        part[..4].copy_from_slice(&16_u32.to_ne_bytes());
        part[4] = 3;
        assert!(read(&part, &mut out).unwrap());
        assert!(out.is_empty());
        assert_eq!(about(&[1; ABOUT + 3]), None);
    }
}
