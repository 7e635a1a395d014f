//! Blocks of a segment: events as bytes.

use crate::{Entry, Event, Key, Revision};
use objects::packed::Packed;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Uncompressed bytes of a block, but for its last event.
const BLOCK: usize = 256 << 10;
/// A block of more is damaged: an event has two versions of 1.5 MiB at most.
const BLOCK_MAX: usize = 16 << 20;
/// Bytes in front of a block: compressed length, checksum, length, first and last revision.
const HEADER: usize = 28;

/// What stands in front of a block.
pub(super) struct Header {
    compressed: u32,
    checksum: u32,
    length: u32,
    pub(super) first: Revision,
    pub(super) last: Revision,
}

impl Header {
    pub(super) fn read(file: &File, offset: u64) -> io::Result<Self> {
        let mut bytes = [0; HEADER];
        file.read_exact_at(&mut bytes, offset)?;
        let mut fields = Fields(&bytes);
        let header = (|| {
            Some(Self {
                compressed: fields.u32()?,
                checksum: fields.u32()?,
                length: fields.u32()?,
                first: fields.u64()?,
                last: fields.u64()?,
            })
        })();
        header.filter(|header| header.first <= header.last).ok_or_else(damaged)
    }

    pub(super) fn next(&self, offset: u64) -> u64 {
        offset.saturating_add(HEADER as u64).saturating_add(self.compressed.into())
    }

    pub(super) fn events(&self, file: &File, offset: u64) -> io::Result<Vec<Event>> {
        if self.compressed as usize > BLOCK_MAX || self.length as usize > BLOCK_MAX {
            return Err(damaged());
        }
        let mut compressed = vec![0; self.compressed as usize];
        file.read_exact_at(&mut compressed, offset.saturating_add(HEADER as u64))?;
        if checksum(&compressed) != self.checksum {
            return Err(damaged());
        }
        let mut plain = Vec::with_capacity(self.length as usize);
        flate2::read::DeflateDecoder::new(&compressed[..]).take(self.length.into()).read_to_end(&mut plain)?;
        let mut fields = Fields(&plain);
        let mut out = Vec::new();
        while !fields.0.is_empty() {
            out.push(event(&mut fields).ok_or_else(damaged)?);
        }
        Ok(out)
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a block of the history is damaged")
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Events one after the other as blocks.
pub(super) fn blocks(events: &[Event]) -> io::Result<Vec<u8>> {
    let (mut out, mut plain) = (Vec::new(), Vec::new());
    let mut first = events.first().map_or(0, |event| event.revision);
    for (at, event) in events.iter().enumerate() {
        record(event, &mut plain);
        if plain.len() < BLOCK && at.saturating_add(1) < events.len() {
            continue;
        }
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&plain)?;
        let compressed = encoder.finish()?;
        for number in [compressed.len(), checksum(&compressed) as usize, plain.len()] {
            out.extend_from_slice(&u32::try_from(number).map_err(io::Error::other)?.to_le_bytes());
        }
        out.extend_from_slice(&first.to_le_bytes());
        out.extend_from_slice(&event.revision.to_le_bytes());
        out.extend_from_slice(&compressed);
        plain.clear();
        first = event.revision.saturating_add(1);
    }
    Ok(out)
}

/// Appends an event: revision, deleted, bucket, namespace, name, then one or two versions.
fn record(event: &Event, out: &mut Vec<u8>) {
    let text = |out: &mut Vec<u8>, bytes: &[u8]| {
        // bounded by 1.5 MiB long before
        out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    let key = &event.entry.key;
    out.extend_from_slice(&event.revision.to_le_bytes());
    out.push(event.deleted.into());
    for part in [&*event.bucket, &key.namespace, &key.name] {
        text(out, part.as_bytes());
    }
    out.push(event.previous.is_some().into());
    for entry in event.previous.iter().chain([&event.entry]) {
        out.extend_from_slice(&entry.created.to_le_bytes());
        out.extend_from_slice(&entry.revision.to_le_bytes());
        text(out, &entry.bytes());
    }
}

fn event(fields: &mut Fields<'_>) -> Option<Event> {
    fn entry(fields: &mut Fields<'_>, key: &Key) -> Option<Arc<Entry>> {
        let (created, revision, bytes) = (fields.u64()?, fields.u64()?, fields.bytes()?);
        // its checksum was right: it is what was written, JSON
        let object = Arc::new(Packed::from_text(bytes.to_vec()));
        Some(Arc::new(Entry { key: key.clone(), created, revision, object }))
    }
    let (revision, deleted, bucket) = (fields.u64()?, fields.u8()? != 0, fields.text()?);
    let key = Key::new(fields.text()?, fields.text()?);
    let previous = if fields.u8()? != 0 { Some(entry(fields, &key)?) } else { None };
    Some(Event { bucket: bucket.into(), revision, entry: entry(fields, &key)?, previous, deleted })
}

/// Numbers and texts one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}
