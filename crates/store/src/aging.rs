//! Objects on their way from being worked on to being kept: what has been written lately is read by many, and most of what lies
//! longer is not read for hours. So it is compressed, each bucket's objects by what they have in common ([`objects::compressed`]).

use objects::compressed::Models;
use objects::packed::Packed;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// An object is old after so many rests.
const OLD: u64 = 2;
/// So many objects may wait before those are looked for that have been replaced meanwhile.
const FEW: usize = 1024;

#[derive(Default)]
pub(crate) struct Aging {
    waiting: Mutex<Waiting>,
    models: Mutex<HashMap<Arc<str>, Models>>,
}

#[derive(Default)]
struct Waiting {
    /// Oldest first: the bucket, the object while anybody has it, and the rest in which it came.
    objects: VecDeque<(Arc<str>, Weak<Packed>, u64)>,
    rests: u64,
    /// How many were left the last time that those were looked for that nobody has any more.
    left: usize,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Aging {
    /// An object that has just come.
    pub(crate) fn add(&self, bucket: &Arc<str>, object: &Arc<Packed>) {
        let mut waiting = lock(&self.waiting);
        let now = waiting.rests;
        waiting.objects.push_back((bucket.clone(), Arc::downgrade(object), now));
        // a store whose keeper never rests keeps the places of objects that are gone no longer than this
        if waiting.objects.len() > waiting.left.saturating_mul(2).saturating_add(FEW) {
            waiting.objects.retain(|(_, object, _)| object.strong_count() > 0);
            waiting.left = waiting.objects.len();
        }
    }

    /// A while is over.
    pub(crate) fn rest(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.rests = waiting.rests.saturating_add(1);
    }

    /// Compresses old objects, some `bytes` of them; whether there may be more.
    pub(crate) fn compress(&self, bytes: usize) -> bool {
        let mut models = lock(&self.models);
        let mut left = bytes;
        while left > 0 {
            let oldest = {
                let mut waiting = lock(&self.waiting);
                let now = waiting.rests;
                let oldest = waiting.objects.pop_front_if(|(_, _, since)| now.saturating_sub(*since) >= OLD);
                waiting.left = waiting.left.min(waiting.objects.len());
                oldest
            };
            let Some((bucket, object, _)) = oldest else { return false };
            if let Some(object) = object.upgrade() {
                object.compress(models.entry(bucket).or_default());
                left = left.saturating_sub(object.length());
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(number: usize) -> Arc<Packed> {
        Arc::new(Packed::from_text(format!("{{\"name\":\"{number}\",\"long\":\"{}\"}}", "x".repeat(1000)).into_bytes()))
    }

    #[test]
    fn objects_are_compressed_once_they_are_old() {
        let aging = Aging::default();
        let bucket: Arc<str> = "pods".into();
        let objects: Vec<Arc<Packed>> = (0..10).map(object).collect();
        let text = |object: &Arc<Packed>| object.text().to_vec();
        let before: Vec<Vec<u8>> = objects.iter().map(text).collect();
        objects.iter().for_each(|object| aging.add(&bucket, object));
        assert!(!aging.compress(usize::MAX));
        aging.rest();
        assert!(!aging.compress(usize::MAX), "they are young");
        assert_eq!(lock(&aging.waiting).objects.len(), 10);
        aging.rest();
        assert!(aging.compress(2500), "there are more");
        assert_eq!(lock(&aging.waiting).objects.len(), 7);
        assert!(!aging.compress(usize::MAX));
        assert!(lock(&aging.waiting).objects.is_empty());
        assert!(format!("{:?}", objects[9]).contains("Compressed"));
        assert_eq!(objects.iter().map(text).collect::<Vec<_>>(), before);
    }

    #[test]
    fn what_is_gone_takes_no_place() {
        let aging = Aging::default();
        let bucket: Arc<str> = "pods".into();
        let stays = object(0);
        aging.add(&bucket, &stays);
        for number in 0..10 * FEW {
            aging.add(&bucket, &object(number));
        }
        assert!(lock(&aging.waiting).objects.len() <= 2 * FEW);
        aging.rest();
        aging.rest();
        assert!(!aging.compress(usize::MAX));
        assert!(format!("{stays:?}").contains("Compressed"));
    }
}
