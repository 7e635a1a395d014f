//! The checksum of a file that comes in parts, without another look at it where that can be: sums that can be joined (CRCs) are taken of
//! each part as it is written, others of the file from its beginning, as far as its parts follow each other.

use crate::plan::parts::Cut;
use crate::plan::verify::{Algorithm, Check, Crc, Hasher};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Bytes that are read back at once: few enough to be in the processor's cache when they are summed up.
const BUFFER: usize = 128 << 10;

pub struct Sum {
    cut: Cut,
    algorithm: Algorithm,
    /// The parts that are there, with the sum of each where it was taken.
    parts: Mutex<BTreeMap<u32, Option<Crc>>>,
    follower: Mutex<Follower>,
}

struct Follower {
    hasher: Hasher,
    /// All parts before this one are in it.
    next: u32,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sum {
    /// `there`: parts that an earlier run left.
    pub fn new(algorithm: Algorithm, cut: Cut, there: &[u32]) -> Self {
        let parts = there.iter().map(|index| (*index, None)).collect();
        let follower = Follower { hasher: Hasher::new(algorithm, cut.size), next: 0 };
        Self { cut, algorithm, parts: Mutex::new(parts), follower: Mutex::new(follower) }
    }

    /// What is to be counted of a part while it is written.
    pub fn of_part(&self) -> Option<Hasher> {
        self.algorithm.is_joinable().then(|| Hasher::new(self.algorithm, 0))
    }

    /// A part is in `file`, with what `of_part` made of it. Reads on, unless another thread does.
    ///
    /// # Errors
    /// The disk fails.
    pub fn add(&self, file: &File, index: u32, hasher: Option<Hasher>) -> io::Result<()> {
        held(&self.parts).insert(index, hasher.and_then(Hasher::crc));
        if self.algorithm.is_joinable() {
            return Ok(());
        }
        match self.follower.try_lock() {
            Ok(mut follower) => self.follow(&mut follower, file),
            Err(TryLockError::Poisoned(poisoned)) => self.follow(&mut poisoned.into_inner(), file),
            Err(TryLockError::WouldBlock) => Ok(()),
        }
    }

    fn follow(&self, follower: &mut Follower, file: &File) -> io::Result<()> {
        while follower.next < self.cut.count() && held(&self.parts).contains_key(&follower.next) {
            self.read(file, follower.next, &mut follower.hasher)?;
            follower.next = follower.next.saturating_add(1);
        }
        Ok(())
    }

    fn read(&self, file: &File, index: u32, hasher: &mut Hasher) -> io::Result<()> {
        let mut range = self.cut.range(index);
        let mut buffer = vec![0; BUFFER];
        while !range.is_empty() {
            let count = (buffer.len() as u64).min(range.end.saturating_sub(range.start));
            let some = buffer.get_mut(..usize::try_from(count).unwrap_or(BUFFER)).unwrap_or_default();
            file.read_exact_at(some, range.start)?;
            hasher.update(some);
            range.start = range.start.saturating_add(count);
        }
        Ok(())
    }

    /// The sum of all parts.
    ///
    /// # Errors
    /// The disk fails; a part is not there.
    pub fn finish(&self, file: &File) -> io::Result<Check> {
        if held(&self.parts).len() != usize::try_from(self.cut.count()).unwrap_or(usize::MAX) {
            return Err(io::Error::other("a part of the file is missing"));
        }
        if !self.algorithm.is_joinable() {
            let mut follower = held(&self.follower);
            self.follow(&mut follower, file)?;
            let whole = std::mem::replace(&mut follower.hasher, Hasher::new(self.algorithm, self.cut.size));
            return Ok(whole.finish());
        }
        let mut all = Crc::nothing(self.algorithm);
        for index in 0..self.cut.count() {
            let known = held(&self.parts).get(&index).copied().flatten();
            let part = match known {
                Some(part) => Some(part),
                // of an earlier run
                None => {
                    let mut hasher = Hasher::new(self.algorithm, 0);
                    self.read(file, index, &mut hasher)?;
                    hasher.crc()
                }
            };
            all = part.map_or(all, |part| all.joined(part));
        }
        Ok(all.check())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALGORITHMS: [&str; 8] = ["crc32", "crc32c", "crc64nvme", "md5", "git-sha1", "sha1", "sha256", "sha512"];

    proptest! {
        /// In whichever order parts come, and whichever were there before: the sum is that of the whole.
        #[test]
        fn the_sum_of_parts_is_that_of_the_whole(
            content in prop::collection::vec(any::<u8>(), 1..400),
            part in 1_u64..90,
            order in any::<prop::sample::Index>(),
            before in any::<u64>(),
            algorithm in prop::sample::select(&ALGORITHMS[..]),
        ) {
            let algorithm = Algorithm::parse(algorithm).unwrap();
            let cut = Cut { size: content.len() as u64, part };
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&content, 0).unwrap();
            let mut whole = Hasher::new(algorithm, cut.size);
            whole.update(&content);
            let (there, mut rest): (Vec<u32>, Vec<u32>) = (0..cut.count()).partition(|index| before >> (index % 64) & 1 == 1);
            if !rest.is_empty() {
                let at = order.index(rest.len());
                rest.rotate_left(at);
            }
            let sum = Sum::new(algorithm, cut, &there);
            for index in rest {
                prop_assert!(sum.finish(&file).is_err(), "a part is missing");
                let range = cut.range(index);
                let hasher = sum.of_part().map(|mut hasher| {
                    hasher.update(&content[range.start as usize..range.end as usize]);
                    hasher
                });
                sum.add(&file, index, hasher).unwrap();
            }
            prop_assert_eq!(sum.finish(&file).unwrap(), whole.finish());
        }
    }
}
