//! Ports that only one group of pods on the machine has, whatever control planes there are.
//!
//! A group takes a slot: some ports in a row. Who has a slot holds a Unix socket of that slot's name. The kernel gives a name
//! to one socket at a time and takes it back when the last holder is gone, however that ended; names and ports have the same
//! scope, the network namespace. The agent holds the socket, and so does the shim of each pod (as its standard input): a slot
//! stays taken while any of the pods is there, also when the control plane was killed. Binding the ports themselves would
//! not do: the script's own server has to.
//!
//! Any user of the machine can hold all slots, and other users' jobs then wait. To ignore the slots of other users would not help: who
//! can hold 1,175 sockets can listen on the 9,400 ports as well, or take the one port just before a job's server does. It would only let
//! jobs of two users collide. Ports are private in a network namespace alone, which an ordinary user's agent cannot give to pods.

use crate::{identity, unix_diag};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, SockaddrLike, bind, socket};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixDatagram;
use std::{fmt, io};

/// Where slots are: below the kernel's ephemeral ports (32768 and up), above what services commonly have. No framework's
/// default port is among them, so that no program started by hand gets in between.
const FIRST: u16 = 20_000;
const SLOTS: u16 = 1175;
/// What the names of their sockets begin with; the first port follows.
const NAMES: &str = "trainyard/ports/";
/// Ports of a slot: as many rendezvous servers as one job may have.
pub const SLOT_PORTS: u16 = 8;

/// A slot that this process holds.
pub struct Slot {
    first: u16,
    socket: UnixDatagram,
}

impl Slot {
    /// Takes a slot of which all ports are free and none is among those given away already, beginning at a place made from the
    /// group's name. `None`: there is none.
    pub fn take(group: &str, given: &BTreeSet<u16>) -> Option<Self> {
        let start = (identity::hash(&[group]) % u64::from(SLOTS)) as u16;
        let slots = (0..SLOTS).map(|n| FIRST + (start + n) % SLOTS * SLOT_PORTS);
        slots.filter_map(Self::hold).find(|slot| slot.ports().all(|port| !given.contains(&port) && is_free(port)))
    }

    /// Takes the slot of this port, if nobody has it.
    pub fn of_port(port: u16) -> Option<Self> {
        let at = port.checked_sub(FIRST)? / SLOT_PORTS;
        (at < SLOTS).then(|| Self::hold(FIRST + at * SLOT_PORTS)).flatten()
    }

    fn hold(first: u16) -> Option<Self> {
        let name = std::os::unix::net::SocketAddr::from_abstract_name(format!("{NAMES}{first}")).ok()?;
        Some(Self { first, socket: UnixDatagram::bind_addr(&name).ok()? })
    }

    /// Its ports, in order.
    pub fn ports(&self) -> std::ops::Range<u16> {
        self.first..self.first + SLOT_PORTS
    }

    /// A descriptor that keeps the slot taken while any process has it.
    pub fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.socket.try_clone()?.into())
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slot({})", self.first)
    }
}

/// The id of another user who holds more than half of all slots. `None` if there is none, or if the kernel does not list the sockets.
pub fn hoarder() -> Option<u32> {
    let names = unix_diag::abstract_names().ok()?;
    let users = names.iter().filter(|(name, _)| name.starts_with(NAMES.as_bytes())).map(|(_, user)| *user);
    most(users).filter(|user| *user != nix::unistd::geteuid().as_raw())
}

/// The user of more than half of all slots.
fn most(users: impl Iterator<Item = u32>) -> Option<u32> {
    let mut held: BTreeMap<u32, u16> = BTreeMap::new();
    users.for_each(|user| *held.entry(user).or_default() += 1);
    held.into_iter().find(|(_, slots)| *slots > SLOTS / 2).map(|(user, _)| user)
}

/// Whether nothing has this port, at any address. Unlike the standard library's listeners this asks without SO_REUSEADDR,
/// so that a port whose last connections still wait for their end counts as taken.
fn is_free(port: u16) -> bool {
    let is_taken = |family, address: &dyn SockaddrLike| {
        let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
        socket.is_ok_and(|socket| bind(socket.as_raw_fd(), address) == Err(Errno::EADDRINUSE))
    };
    let all_v6 = SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0));
    !is_taken(AddressFamily::Inet, &SockaddrIn::new(0, 0, 0, 0, port)) && !is_taken(AddressFamily::Inet6, &all_v6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_slot_is_one_holders_at_a_time() {
        let group = format!("a test of slots {}", std::process::id());
        let first = Slot::take(&group, &BTreeSet::new()).expect("a slot");
        let second = Slot::take(&group, &BTreeSet::new()).expect("a slot");
        assert!(first.ports().all(|port| !second.ports().contains(&port)), "{first:?} {second:?}");
        let port = first.ports().start;
        let held = first.share().expect("a descriptor");
        drop(first);
        assert!(Slot::of_port(port + 3).is_none(), "the descriptor holds it");
        drop(held);
        assert!(Slot::of_port(port + 3).is_some_and(|slot| slot.ports().start == port));
        assert!([6666, 29_400, 29_500].into_iter().all(|port| Slot::of_port(port).is_none()), "defaults are no slot's");
    }

    #[test]
    fn who_has_more_than_half_has_most() {
        let users = |user: u32, slots: u16| (0..slots).map(move |_| user);
        assert_eq!(most(users(7, 587).chain(users(8, 588))), Some(8));
        assert_eq!(most(users(7, 587).chain(users(8, 587))), None);
        assert_eq!(hoarder(), None);
    }

    #[test]
    fn a_slot_with_a_port_in_use_is_passed_over() {
        let group = format!("a test of ports {}", std::process::id());
        let first = Slot::take(&group, &BTreeSet::new()).expect("a slot");
        let start = first.ports().start;
        let listener = TcpListener::bind(("127.0.0.1", start + 1)).expect("a port of the slot");
        drop(first);
        let other = Slot::take(&group, &BTreeSet::new()).expect("a slot");
        assert_ne!(other.ports().start, start, "one of its ports is in use");
        drop(listener);
    }
}
