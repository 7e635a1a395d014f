//! Reads ELF headers of Linux programs (64 bits, little-endian): the machine, and whether a program needs shared libraries.

use anyhow::{Context, Result, bail};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Architecture, LittleEndian, Object};

/// What we want to know of a program.
#[derive(Debug, PartialEq, Eq)]
pub struct Elf {
    /// As container images call it.
    pub architecture: &'static str,
    /// The dynamic linker that it asks for; `None`: it is static.
    pub interpreter: Option<String>,
}

/// Reads the headers.
pub fn read(bytes: &[u8]) -> Result<Elf> {
    let file = ElfFile64::<LittleEndian>::parse(bytes).context("it is not ELF, of 64 bits and little-endian")?;
    let architecture = match file.architecture() {
        Architecture::X86_64 => "amd64",
        Architecture::Aarch64 => "arm64",
        other => bail!("it is for {other:?}, neither x86-64 nor AArch64"),
    };
    let mut interpreter = None;
    for header in file.elf_program_headers() {
        let path = header.interpreter(file.endian(), bytes).context("its interpreter cannot be read")?;
        interpreter = interpreter.or(path.map(|path| String::from_utf8_lossy(path).into_owned()));
    }
    Ok(Elf { architecture, interpreter })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with one program header, of this type, whose contents follow.
    fn made(machine: u8, kind: u8, contents: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 120];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
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
