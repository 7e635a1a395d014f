//! The user's terminal: its size, and reading it key by key.

use client::ClientError;
use nix::sys::termios::{self, SetArg, Termios};
use std::io;
use std::os::fd::AsRawFd;

/// Columns and rows; `None` where neither output nor input is a terminal.
pub(crate) fn size() -> Option<(u16, u16)> {
    [io::stdout().as_raw_fd(), io::stdin().as_raw_fd()].into_iter().find_map(|fd| {
        let mut size = nix::pty::Winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
        #[expect(unsafe_code, reason = "nix has no wrapper for TIOCGWINSZ, which writes a Winsize")]
        let result = unsafe { nix::libc::ioctl(fd, nix::libc::TIOCGWINSZ, &mut size) };
        (result == 0 && size.ws_col > 0).then_some((size.ws_col, size.ws_row))
    })
}

/// While it lives, each key goes on as it is, Ctrl-C too.
pub(crate) struct Raw {
    before: Termios,
}

impl Raw {
    pub(crate) fn enter() -> io::Result<Self> {
        let before = termios::tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        termios::cfmakeraw(&mut raw);
        termios::tcsetattr(io::stdin(), SetArg::TCSADRAIN, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // a terminal that is gone needs nothing
        let _ = termios::tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.before);
    }
}

/// The error of a terminal that does not do what it is asked.
pub(crate) fn error(source: io::Error) -> ClientError {
    ClientError::Io { doing: "use the terminal", path: "/dev/tty".into(), source }
}
