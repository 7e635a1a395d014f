//! Control planes that are killed: each write and each call of a provider is counted, and one of them is the last that a control plane does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// When the control plane is killed: right before what it was about to do, or right after, before it hears of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}

/// What has been done so far, across lives.
#[derive(Default)]
struct Count {
    /// Whether it is counted: not what leads up to what is tried.
    on: bool,
    done: Vec<String>,
    kill: Option<(usize, Side)>,
    killed: bool,
}

/// Writes and calls, by number.
#[derive(Clone, Default)]
pub struct Points(Arc<Mutex<Count>>);

impl Points {
    pub fn killing(kill: Option<(usize, Side)>) -> Self {
        Self(Arc::new(Mutex::new(Count { kill, ..Count::default() })))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Count) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn count(&self, on: bool) {
        self.with(|count| count.on = on);
    }

    /// What was counted.
    pub fn done(&self) -> Vec<String> {
        self.with(|count| count.done.clone())
    }

    pub fn killed(&self) -> bool {
        self.with(|count| count.killed)
    }
}

/// One control plane, from its start to its kill.
pub struct Life {
    /// The how-manieth it is.
    pub number: u32,
    points: Points,
    dead: AtomicBool,
    pub death: Notify,
    /// What must hold at every moment.
    look: Box<dyn Fn() + Send + Sync>,
}

impl Life {
    pub fn new(number: u32, points: Points, look: Box<dyn Fn() + Send + Sync>) -> Self {
        Self { number, points, dead: AtomicBool::new(false), death: Notify::new(), look }
    }

    /// The dead do nothing: what they were about to do waits for ever.
    pub async fn lives(&self) {
        if self.dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    /// Before a write or a call: gives its number where it is counted.
    pub async fn reach(&self, what: String) -> Option<usize> {
        self.lives().await;
        let point = self.points.with(|count| {
            count.on.then(|| {
                count.done.push(what);
                count.done.len() - 1
            })
        });
        self.pass(point, Side::Before).await;
        point
    }

    pub async fn pass(&self, point: Option<usize>, side: Side) {
        (self.look)();
        self.lives().await;
        let dies = self.points.with(|count| {
            let dies = point.is_some_and(|point| count.kill == Some((point, side)));
            count.killed |= dies;
            dies
        });
        if dies {
            self.dead.store(true, Ordering::Relaxed);
            self.death.notify_one();
            self.lives().await;
        }
    }
}
