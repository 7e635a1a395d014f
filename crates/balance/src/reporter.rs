//! Sends the report: at once when a first request is held, about 200 ms after other changes, and each second if numbers changed.

use crate::balancer::Balancer;
use crate::report::BalancerReport;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Changes within this time make one report.
const TOGETHER: Duration = Duration::from_millis(200);
const SECOND: Duration = Duration::from_secs(1);
/// Whole seconds that are remembered; the current one makes the minute full.
const SECONDS: usize = 59;

/// Requests of the last minute, counted by seconds.
#[derive(Debug, Default)]
struct Minute {
    seconds: VecDeque<u64>,
    /// The total at the end of the last whole second.
    counted: u64,
}

impl Minute {
    /// Ends a second.
    fn advance(&mut self, total: u64) {
        self.seconds.push_back(total.saturating_sub(self.counted));
        self.counted = total;
        if self.seconds.len() > SECONDS {
            self.seconds.pop_front();
        }
    }

    fn sum(&self, total: u64) -> u64 {
        let current = total.saturating_sub(self.counted);
        self.seconds.iter().fold(current, |sum, second| sum.saturating_add(*second))
    }
}

/// Sends reports until it is dropped.
pub(crate) async fn follow(balancer: Arc<Balancer>, sender: watch::Sender<BalancerReport>) {
    let mut minute = Minute::default();
    let mut tick = interval(SECOND);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _at = tick.tick() => {
                minute.advance(balancer.arrivals());
                balancer.drop_old();
            }
            () = balancer.urgent.notified() => {}
            () = balancer.news.notified() => tokio::select! {
                () = sleep(TOGETHER) => {}
                () = balancer.urgent.notified() => {}
            },
        }
        send(&balancer, &minute, &sender);
    }
}

/// Sends the report if it differs from the last one.
fn send(balancer: &Balancer, minute: &Minute, sender: &watch::Sender<BalancerReport>) {
    let report = balancer.report(minute.sum(balancer.arrivals()));
    sender.send_if_modified(|last| {
        let is_new = *last != report;
        if is_new {
            *last = report;
        }
        is_new
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_leave_the_count_after_a_minute() {
        let mut minute = Minute::default();
        assert_eq!(minute.sum(3), 3);
        minute.advance(3);
        assert_eq!(minute.sum(5), 5);
        for _ in 0..58 {
            minute.advance(5);
        }
        assert_eq!(minute.sum(5), 5);
        minute.advance(5);
        assert_eq!(minute.sum(5), 2);
        minute.advance(5);
        assert_eq!(minute.sum(6), 1);
    }
}
