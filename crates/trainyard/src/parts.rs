//! The long-running parts of the control plane, and whether each still runs.

use apiserver::Check;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const STARTING: u8 = 0;
const RUNNING: u8 = 1;
const ENDED: u8 = 2;

/// One part, as `/readyz` and `/livez` see it.
pub(crate) struct Part {
    name: &'static str,
    state: AtomicU8,
}

impl Part {
    pub(crate) fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name, state: AtomicU8::new(STARTING) })
    }

    /// Runs the part. That it has ended shows also where it panicked.
    pub(crate) async fn run(self: Arc<Self>, work: impl Future<Output = ()>) {
        struct End(Arc<Part>);
        impl Drop for End {
            fn drop(&mut self) {
                self.0.state.store(ENDED, Ordering::Relaxed);
            }
        }
        self.state.store(RUNNING, Ordering::Relaxed);
        let end = End(self);
        work.await;
        drop(end);
    }
}

impl Check for Part {
    fn name(&self) -> &str {
        self.name
    }

    fn check(&self) -> Result<(), String> {
        match self.state.load(Ordering::Relaxed) {
            STARTING => Err("not started yet".to_owned()),
            RUNNING => Ok(()),
            _ => Err("ended; start the control plane again (running jobs go on)".to_owned()),
        }
    }

    fn is_vital(&self) -> bool {
        // what is starting needs no help
        self.state.load(Ordering::Relaxed) != STARTING
    }
}
