//! Control planes that are killed. Each write and each call of a provider is counted, and a control plane is killed at one of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// When the control plane is killed: right before the action, or right after it, before it gets the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}

/// The actions so far, of all lives.
#[derive(Default)]
struct Count {
    /// Whether actions are counted. Preparations are not.
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

    /// The counted actions.
    pub fn done(&self) -> Vec<String> {
        self.with(|count| count.done.clone())
    }

    pub fn killed(&self) -> bool {
        self.with(|count| count.killed)
    }
}

/// One control plane, from its start to its kill.
pub struct Life {
    /// Its number, in the order of the lives.
    pub number: u32,
    points: Points,
    dead: AtomicBool,
    pub death: Notify,
    /// Checks what must hold at every moment.
    look: Box<dyn Fn() + Send + Sync>,
}

impl Life {
    pub fn new(number: u32, points: Points, look: Box<dyn Fn() + Send + Sync>) -> Self {
        Self { number, points, dead: AtomicBool::new(false), death: Notify::new(), look }
    }

    /// A dead control plane does nothing: its next action waits for ever.
    pub async fn lives(&self) {
        if self.dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    /// Comes before a write or a call. Returns its number if it is counted.
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
