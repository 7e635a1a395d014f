//! What a program for Linux says of itself: its machine, and whether it needs others to run (ELF, 64 bits, little-endian).

use anyhow::{Context, Result, bail, ensure};

/// What we want to know of a program.
#[derive(Debug, PartialEq, Eq)]
pub struct Elf {
    /// As container images call it.
    pub architecture: &'static str,
    /// The dynamic linker that it asks for; `None`: it is static.
    pub interpreter: Option<String>,
}

/// Program header type of the path of the dynamic linker.
const PT_INTERP: u64 = 3;

/// Reads the headers.
pub fn read(bytes: &[u8]) -> Result<Elf> {
    ensure!(bytes.starts_with(b"\x7fELF"), "it is not ELF");
    ensure!(bytes.get(4..6) == Some(&[2, 1]), "only 64 bits and little-endian are known");
    let architecture = match number(bytes, 18, 2)? {
        62 => "amd64",
        183 => "arm64",
        other => bail!("machine {other} is neither x86-64 (62) nor AArch64 (183)"),
    };
    let (table, size, count) = (number(bytes, 32, 8)?, number(bytes, 54, 2)?, number(bytes, 56, 2)?);
    let mut interpreter = None;
    for i in 0..count {
        let header = usize::try_from(table + i * size)?;
        if number(bytes, header, 4)? == PT_INTERP {
            let (start, length) = (number(bytes, header + 8, 8)?, number(bytes, header + 32, 8)?);
            let path = bytes.get(usize::try_from(start)?..usize::try_from(start.saturating_add(length))?);
            let path = path.context("its interpreter lies beyond its end")?;
            interpreter = Some(String::from_utf8_lossy(path).trim_end_matches('\0').to_owned());
        }
    }
    Ok(Elf { architecture, interpreter })
}

/// A number of some bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> Result<u64> {
    let field = bytes.get(at..at.saturating_add(length)).context("it is cut off")?;
    Ok(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with one program header, of this type, whose contents follow.
    fn made(machine: u8, kind: u8, contents: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 120];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (bytes[18], bytes[32], bytes[54], bytes[56]) = (machine, 64, 56, 1);
        (bytes[64], bytes[72], bytes[96]) = (kind, 120, u8::try_from(contents.len()).unwrap());
        bytes.extend(contents);
        bytes
    }

    #[test]
    fn what_a_program_needs_is_read() {
        let dynamic = read(&made(62, 3, b"/lib/ld.so\0")).unwrap();
        assert_eq!(dynamic, Elf { architecture: "amd64", interpreter: Some("/lib/ld.so".to_owned()) });
        assert_eq!(read(&made(183, 1, b"")).unwrap(), Elf { architecture: "arm64", interpreter: None });
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(read(&own).is_ok());
        assert!(read(&made(3, 1, b"")).is_err() && read(b"#!/bin/sh\n").is_err());
        assert!(read(&made(62, 3, b"/lib/ld.so")[..100]).is_err());
    }
}
