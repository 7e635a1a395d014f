//! Words on stderr from processes that must outlive it.

/// As `eprintln!`; but where stderr is a full disk or a pipe that nobody reads, the words are lost and not the process.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        // there is nowhere else to say it
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}
