//! Asks the user to confirm.

use client::ClientError;
use std::io::{BufRead, Write};

/// Asks on stderr until stdin answers yes or no. An empty answer or the end of input means no; then it prints `declined`.
///
/// Errors: stdin cannot be read.
pub(crate) fn is_given(declined: &str) -> Result<bool, ClientError> {
    loop {
        eprint!("Proceed? [y/N] ");
        let mut answer = String::new();
        let read = std::io::stderr().flush().and_then(|()| std::io::stdin().lock().read_line(&mut answer));
        read.map_err(|source| ClientError::Io { doing: "read", path: "the terminal".into(), source })?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return Ok(true),
            "" | "n" | "no" => {
                eprintln!("{declined}");
                return Ok(false);
            }
            _ => eprintln!("answer y or n"),
        }
    }
}
