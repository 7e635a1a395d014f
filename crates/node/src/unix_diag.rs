//! Lists the machine's Unix sockets with their owners through `sock_diag(7)`, which every user may ask. The kernel names owners since Linux 5.3.

use nix::libc::{NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use std::fs::File;
use std::io::{self, Read, Write};

/// The request for sockets of a family, and what it asks of each: name and user.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SHOW_NAME_AND_USER: u32 = 0x41;
/// Attributes of an answer.
const NAME: u16 = 0;
const USER: u16 = 7;
/// Bytes of a message's header, of what follows it, and of an attribute's header.
const HEADER: usize = 16;
const SOCKET: usize = 16;
const ATTRIBUTE: usize = 4;
/// Bytes of answers that are read at once: as many as the kernel sends at most.
const ANSWERS: usize = 32 << 10;

/// The abstract names of sockets, and the id of the user of each.
///
/// Errors: the kernel does not answer, or refuses it.
pub fn abstract_names() -> io::Result<Vec<(Vec<u8>, u32)>> {
    let kernel = socket(
        AddressFamily::Netlink,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        SockProtocol::NetlinkSockDiag,
    )?;
    let mut kernel = File::from(kernel);
    kernel.write_all(&request())?;
    let (mut found, mut answers) = (Vec::new(), vec![0; ANSWERS]);
    loop {
        let read = kernel.read(&mut answers)?;
        for message in parts(answers.get(..read).unwrap_or_default(), HEADER, |bytes| word(bytes)?.try_into().ok()) {
            match message.get(4..).and_then(half).map(i32::from) {
                Some(NLMSG_DONE) => return Ok(found),
                None | Some(NLMSG_ERROR) => return Err(io::Error::other("the kernel does not list sockets")),
                Some(_) => found.extend(named(message)),
            }
        }
        if read == 0 {
            return Ok(found);
        }
    }
}

fn request() -> Vec<u8> {
    let flags = u16::try_from(NLM_F_REQUEST | NLM_F_DUMP).unwrap_or_default();
    let mut bytes = 40_u32.to_ne_bytes().to_vec();
    bytes.extend([SOCK_DIAG_BY_FAMILY, flags].iter().flat_map(|half| half.to_ne_bytes()));
    let family = u32::from_ne_bytes([u8::try_from(nix::libc::AF_UNIX).unwrap_or_default(), 0, 0, 0]);
    // the message's number and sender; the family; all states; of no single socket; what is shown; no cookie
    let words = [1, 0, family, u32::MAX, 0, SHOW_NAME_AND_USER, u32::MAX, u32::MAX];
    bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

/// The abstract name and the user that a message tells.
fn named(message: &[u8]) -> Option<(Vec<u8>, u32)> {
    let (mut name, mut user) = (None, None);
    let length = |bytes: &[u8]| half(bytes).map(usize::from);
    for attribute in parts(message.get(HEADER + SOCKET..)?, ATTRIBUTE, length) {
        let value = attribute.get(ATTRIBUTE..)?;
        match attribute.get(2..).and_then(half)? {
            NAME => name = value.strip_prefix(b"\0").map(<[u8]>::to_vec),
            USER => user = word(value),
            _ => {}
        }
    }
    Some((name?, user?))
}

/// The records in these bytes. Each begins with its length, and at a multiple of four bytes.
fn parts(mut bytes: &[u8], header: usize, length: impl Fn(&[u8]) -> Option<usize>) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = length(bytes).filter(|length| *length >= header)?;
        let part = bytes.get(..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(part)
    })
}

fn word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.first_chunk()?))
}

fn half(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    #[test]
    fn the_user_of_a_name_is_told() {
        let name = format!("trainyard/a test of names/{}", std::process::id());
        let of = || abstract_names().unwrap().into_iter().find(|(held, _)| held == name.as_bytes());
        assert_eq!(of(), None);
        let held = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        assert_eq!(of().map(|(_, user)| user), Some(nix::unistd::geteuid().as_raw()));
        drop(held);
        assert_eq!(of(), None);
    }

    #[test]
    fn what_is_cut_off_is_no_part() {
        let length = |bytes: &[u8]| half(bytes).map(usize::from);
        let bytes =
            [&5_u16.to_ne_bytes()[..], &[1, 2, 3, 0, 0, 0], &4_u16.to_ne_bytes(), &[9, 9], &9_u16.to_ne_bytes(), &[7]]
                .concat();
        let lengths: Vec<usize> = parts(&bytes, 2, length).map(<[u8]>::len).collect();
        assert_eq!(lengths, [5, 4]);
        assert_eq!(parts(&[0; 8], 2, length).count(), 0, "one without a length ends it");
        assert_eq!(named(&[0; 40]), None);
    }
}
