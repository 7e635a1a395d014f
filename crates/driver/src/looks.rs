//! Who may look at an object when: looks at what was only listed are for processors that nobody else needs.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// A look that takes more than this is a long one: looks at what was only listed wait for its end.
const LONG: Duration = Duration::from_millis(10);

/// The looks of all controllers of a driver.
pub(crate) struct Looks {
    /// For looks at what was only listed: so many at a time.
    permits: Semaphore,
    /// When those began that are being taken.
    begun: Mutex<Vec<Instant>>,
}

/// A look, until it has been taken.
pub(crate) struct Look<'a> {
    looks: &'a Looks,
    begun: Instant,
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        let mut begun = self.looks.begun();
        if let Some(at) = begun.iter().position(|begun| *begun == self.begun) {
            begun.swap_remove(at);
        }
    }
}

impl Looks {
    pub(crate) fn new(permits: usize) -> Self {
        Self { permits: Semaphore::new(permits), begun: Mutex::default() }
    }

    fn begun(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a look.
    pub(crate) fn begin(&self) -> Look<'_> {
        let begun = Instant::now();
        self.begun().push(begun);
        Look { looks: self, begun }
    }

    /// Whether a look takes long: an index of all objects is being made, say, and may need every processor.
    fn is_any_long(&self) -> bool {
        self.begun().iter().any(|begun| begun.elapsed() > LONG)
    }

    /// A permit for a look at what was only listed, where one is free.
    pub(crate) fn try_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.try_acquire().ok().filter(|_| !self.is_any_long())
    }

    /// The same; waits for one, and for the end of long looks.
    pub(crate) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        // never an error: nobody closes it
        let permit = self.permits.acquire().await.ok();
        while self.is_any_long() {
            tokio::time::sleep(LONG).await;
        }
        permit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_only_listed_waits_for_a_permit_and_for_long_looks() {
        let looks = Looks::new(1);
        let permit = looks.try_permit();
        assert!(permit.is_some() && looks.try_permit().is_none());
        drop(permit);
        let (first, second) = (looks.begin(), looks.begin());
        assert!(looks.try_permit().is_some(), "looks that have just begun are short");
        tokio::time::advance(2 * LONG).await;
        assert!(looks.try_permit().is_none());
        drop(first);
        let waits = tokio::time::timeout(Duration::from_secs(60), looks.permit());
        assert!(waits.await.is_err(), "the second goes on");
        let (permit, ()) = tokio::join!(looks.permit(), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(second);
        });
        assert!(permit.is_some());
    }
}
