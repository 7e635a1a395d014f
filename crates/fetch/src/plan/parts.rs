//! Files in parts: which bytes a part is, which parts are there, and which comes next.

use std::collections::VecDeque;
use std::ops::Range;

/// How a file of a known size is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub size: u64,
    pub part: u64,
}

impl Cut {
    pub fn count(self) -> u32 {
        u32::try_from(self.size.div_ceil(self.part.max(1))).unwrap_or(u32::MAX)
    }

    pub fn range(self, index: u32) -> Range<u64> {
        let start = u64::from(index).saturating_mul(self.part).min(self.size);
        start..start.saturating_add(self.part).min(self.size)
    }
}

/// A finished part, as the journal beside a part file has it: index, CRC-32 of the part's bytes, and a checksum of these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    pub index: u32,
    pub crc: u32,
}

pub const RECORD: usize = 12;

impl Finished {
    pub fn encode(self) -> [u8; RECORD] {
        let mut record = [0; RECORD];
        record[..4].copy_from_slice(&self.index.to_le_bytes());
        record[4..8].copy_from_slice(&self.crc.to_le_bytes());
        let own = super::verify::crc32(&record[..8]);
        record[8..].copy_from_slice(&own.to_le_bytes());
        record
    }

    fn decode(record: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(record.get(at..at.checked_add(4)?)?.try_into().ok()?));
        let right = number(8)? == super::verify::crc32(record.get(..8)?);
        right.then_some(Self { index: number(0)?, crc: number(4)? })
    }
}

/// What a journal tells of a file: its first line says whose it is, records follow. What is torn or belongs to another
/// version of the file counts as not there.
pub fn read_journal(journal: &[u8], identity: &str, cut: Cut) -> Vec<Finished> {
    let Some(records) = journal.strip_prefix(identity.as_bytes()).and_then(|rest| rest.strip_prefix(b"\n")) else {
        return Vec::new();
    };
    let records = records.chunks(RECORD).filter_map(Finished::decode);
    records.filter(|finished| finished.index < cut.count()).collect()
}

/// A piece of work: one part of a file, or a whole small file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub file: usize,
    pub part: u32,
}

/// All that is to be fetched. Small files are packed between parts of large ones: these fill the line, those pay a round trip
/// each, so both go on at once.
#[derive(Debug, Default)]
pub struct Queue {
    large: VecDeque<Piece>,
    small: VecDeque<Piece>,
    large_running: usize,
}

impl Queue {
    pub fn push(&mut self, piece: Piece, is_large: bool) {
        if is_large { self.large.push_back(piece) } else { self.small.push_back(piece) }
    }

    /// The next piece for one of `streams`: of these, three in four take parts of large files.
    pub fn next(&mut self, streams: usize) -> Option<(Piece, bool)> {
        let for_large = streams.saturating_sub(streams / 4).max(1);
        let large_first = self.large_running < for_large || self.small.is_empty();
        let large = match large_first {
            true => !self.large.is_empty(),
            false => self.small.is_empty(),
        };
        let piece = if large { self.large.pop_front() } else { self.small.pop_front() }?;
        if large {
            self.large_running += 1;
        }
        Some((piece, large))
    }

    /// How many pieces wait.
    pub fn waiting(&self) -> usize {
        self.large.len().saturating_add(self.small.len())
    }

    pub fn done(&mut self, was_large: bool) {
        if was_large {
            self.large_running = self.large_running.saturating_sub(1);
        }
    }

    /// Takes the pieces of a file out, which is begun anew or given up.
    pub fn forget(&mut self, file: usize) {
        self.large.retain(|piece| piece.file != file);
        self.small.retain(|piece| piece.file != file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_cover_a_file() {
        for (size, part, ends) in [(0, 4, vec![]), (1, 4, vec![1]), (4, 4, vec![4]), (9, 4, vec![4, 8, 9])] {
            let cut = Cut { size, part };
            let ranges: Vec<Range<u64>> = (0..cut.count()).map(|i| cut.range(i)).collect();
            assert_eq!(ranges.iter().map(|range| range.end).collect::<Vec<_>>(), ends);
            assert!(ranges.iter().enumerate().all(|(i, range)| range.start == if i == 0 { 0 } else { ends[i - 1] }));
        }
    }

    #[test]
    fn a_journal_of_another_version_tells_nothing() {
        let cut = Cut { size: 100, part: 10 };
        let mut journal = b"v1\n".to_vec();
        journal.extend(Finished { index: 3, crc: 7 }.encode());
        journal.extend(Finished { index: 10, crc: 7 }.encode()); // past the end
        assert_eq!(read_journal(&journal, "v1", cut), [Finished { index: 3, crc: 7 }]);
        assert_eq!(read_journal(&journal, "v2", cut), []);
        assert_eq!(read_journal(&journal, "v", cut), []);
    }

    proptest! {
        /// A torn or damaged journal tells of no part that was not written.
        #[test]
        fn a_torn_journal_lies_about_nothing(
            parts in prop::collection::vec((0_u32..50, any::<u32>()), 0..20),
            cut_at in 0_usize..300,
            damage in prop::option::of((0_usize..300, 1_u8..)),
        ) {
            let written: Vec<Finished> = parts.iter().map(|&(index, crc)| Finished { index, crc }).collect();
            let mut journal = b"id\n".to_vec();
            written.iter().for_each(|finished| journal.extend(finished.encode()));
            journal.truncate(cut_at);
            if let Some((at, bits)) = damage && at < journal.len() {
                journal[at] ^= bits;
            }
            let told = read_journal(&journal, "id", Cut { size: 500, part: 10 });
            prop_assert!(told.iter().all(|finished| written.contains(finished)));
        }

        /// Each piece comes once, whatever the mix and the number of streams.
        #[test]
        fn every_piece_comes_once(pieces in prop::collection::vec(any::<bool>(), 0..60), streams in 1_usize..20) {
            let mut queue = Queue::default();
            for (file, large) in pieces.iter().enumerate() {
                queue.push(Piece { file, part: 0 }, *large);
            }
            let mut seen = Vec::new();
            let mut running = VecDeque::new();
            while let Some((piece, large)) = queue.next(streams) {
                seen.push(piece.file);
                running.push_back(large);
                if running.len() >= streams {
                    queue.done(running.pop_front().unwrap());
                }
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..pieces.len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn small_files_go_on_beside_large_ones() {
        let mut queue = Queue::default();
        for file in 0..20 {
            queue.push(Piece { file, part: 0 }, file < 10);
        }
        let first: Vec<bool> = (0..8).map(|_| queue.next(8).unwrap().1).collect();
        assert_eq!(first.iter().filter(|large| **large).count(), 6);
    }
}
