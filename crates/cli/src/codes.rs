//! `explain CODE` and `explain --list`: prints the catalogue of error codes.

use crate::{exit, output};
use client::ClientError;
use client::codes::{Entry, ErrorCode, entries};
use grammar::Format;
use serde_json::json;

/// `trainyard explain TY0101`: prints the page of a code. The word of a reason will do, too.
pub(crate) fn explain(word: &str, format: Format) -> Result<u8, ClientError> {
    let Some(entry) = entries().find(|entry| entry.code == word || entry.name == word) else {
        return Err(ClientError::Usage(
            ErrorCode::UnknownCode,
            format!("there is no error code {word}\n  list all codes: trainyard explain --list"),
        ));
    };
    match format {
        Format::Json | Format::Yaml => output::print(&json(entry), format),
        Format::Name => println!("{}", entry.code),
        Format::Table | Format::Wide => print!("{}", entry.page),
    }
    Ok(exit::OK)
}

/// `trainyard explain --list`.
pub(crate) fn list(format: Format) -> u8 {
    match format {
        Format::Json | Format::Yaml => output::print(&entries().map(json).collect(), format),
        Format::Name => entries().for_each(|entry| println!("{}", entry.code)),
        Format::Table | Format::Wide => {
            let row = |entry: Entry| [entry.code, entry.name, entry.meaning].map(str::to_owned).to_vec();
            output::table(&["CODE", "NAME", "MEANING"], entries().map(row).collect());
        }
    }
    exit::OK
}

fn json(entry: Entry) -> serde_json::Value {
    let Entry { code, name, meaning, page } = entry;
    json!({"code": code, "name": name, "meaning": meaning, "page": page})
}

#[cfg(test)]
mod tests;
