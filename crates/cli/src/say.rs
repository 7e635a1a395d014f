//! The macros by which this crate prints. They shadow the standard ones: what others wrote (names, events, messages, hosts' errors) is in
//! almost every line, so control sequences are made visible in all of them. Raw logs and our own sequences are written to the stream.

use api::foreign::visible;
use std::fmt::Arguments;
use std::io::Write;

/// Where a line goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// Writes a text whose control sequences are made visible. A stream that nobody reads any more is no error, as with the standard
/// error stream; the standard output's end ends the process.
pub(crate) fn say(stream: Stream, text: Arguments<'_>, end: &str) {
    let text = text.to_string();
    let text = visible(&text);
    let written = match stream {
        Stream::Out => std::io::stdout().lock().write_all(format!("{text}{end}").as_bytes()),
        Stream::Err => std::io::stderr().lock().write_all(format!("{text}{end}").as_bytes()),
    };
    if written.is_err() && matches!(stream, Stream::Out) {
        std::process::exit(i32::from(crate::exit::OK));
    }
}

macro_rules! println {
    () => { $crate::say::say($crate::say::Stream::Out, format_args!(""), "\n") };
    ($($arg:tt)*) => { $crate::say::say($crate::say::Stream::Out, format_args!($($arg)*), "\n") };
}

macro_rules! print {
    ($($arg:tt)*) => { $crate::say::say($crate::say::Stream::Out, format_args!($($arg)*), "") };
}

macro_rules! eprintln {
    () => { $crate::say::say($crate::say::Stream::Err, format_args!(""), "\n") };
    ($($arg:tt)*) => { $crate::say::say($crate::say::Stream::Err, format_args!($($arg)*), "\n") };
}

macro_rules! eprint {
    ($($arg:tt)*) => { $crate::say::say($crate::say::Stream::Err, format_args!($($arg)*), "") };
}
