//! The shim's socket: requests in, as JSON lines, with file descriptors; replies and notifications out.

use crate::wire::{PROTOCOL, Reply, Request};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use std::io::{self, IoSliceMut, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Longest request; a longer one ends the connection.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// A connected agent.
#[derive(Debug)]
pub struct Client {
    pub stream: UnixStream,
    pub subscribed: bool,
    buffer: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Client {
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, subscribed: false, buffer: Vec::new(), descriptors: Vec::new() })
    }

    /// The requests that arrived, each with the descriptors that came with it. `None`: the connection is over.
    pub fn read(&mut self) -> Option<Vec<(Request, Vec<OwnedFd>)>> {
        let mut requests = Vec::new();
        let mut chunk = vec![0; 64 * 1024];
        let mut space = nix::cmsg_space!([std::os::fd::RawFd; 3]);
        let size = {
            let mut parts = [IoSliceMut::new(&mut chunk)];
            let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
            match recvmsg::<()>(self.stream.as_raw_fd(), &mut parts, Some(&mut space), flags) {
                Ok(message) => {
                    for control in message.cmsgs().ok()? {
                        if let ControlMessageOwned::ScmRights(fds) = control {
                            #[expect(unsafe_code, reason = "the kernel just made these descriptors for us")]
                            self.descriptors.extend(fds.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
                        }
                    }
                    message.bytes
                }
                Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Some(requests),
                Err(_) => return None,
            }
        };
        if size == 0 || self.buffer.len() + size > REQUEST_BYTES_MAX {
            return None;
        }
        self.buffer.extend_from_slice(&chunk[..size]);
        while let Some(end) = self.buffer.iter().position(|&b| b == b'\n') {
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            let descriptors = std::mem::take(&mut self.descriptors);
            match serde_json::from_slice(&line) {
                Ok(request) => requests.push((request, descriptors)),
                // A later version's: the client gets an answer, and the connection goes on.
                Err(e) => {
                    let message =
                        format!("the pod's shim speaks protocol {PROTOCOL} and does not know this request: {e}");
                    self.reply(&Reply::Refused { message });
                }
            }
        }
        Some(requests)
    }

    /// Sends a reply; one to a client that has gone is dropped.
    pub fn reply(&mut self, reply: &Reply) {
        let mut line = serde_json::to_vec(reply).expect("invariant: replies are plain data");
        line.push(b'\n');
        let _ = self.stream.write_all(&line);
    }

    /// Says that the journal has grown. If the client has not read the last word yet, that one serves for both.
    pub fn notify(&mut self) {
        if self.subscribed {
            let _ = self.stream.write_all(b"\n");
        }
    }
}
