//! The whole log of a job as a stream: the lines of all of its runs, merged by time as they are read.

use crate::bytes::{Piece, Pieces as Bytes};
use crate::history::{self, Job, Window};
use crate::run_log::{line, open};
use client::Cluster;
use futures::{AsyncBufRead, StreamExt};
use std::collections::VecDeque;
use std::pin::Pin;
use view::lines::{Line, Show};
use view::marks::Pieces;
use view::runs::Run;

/// Logs that are opened at the same time.
const AT_ONCE: usize = 8;

/// A run that is being read.
struct Reading {
    run: Run,
    stream: Option<Bytes<Pin<Box<dyn AsyncBufRead + Send>>>>,
    pieces: Pieces,
    /// Lines that were read and not yet passed on; of several only at the end.
    ready: VecDeque<Line>,
    /// A line without a time stands where the line before it does.
    time: String,
}

/// The lines of several runs, the earliest first. In memory is one line of each.
pub struct MergedLog {
    runs: Vec<Reading>,
    show: Show,
    /// Logs that could not be read to their end, and why.
    pub troubles: Vec<String>,
}

impl MergedLog {
    /// Opens the logs of these runs. One that cannot be opened is a trouble.
    pub async fn open(cluster: &Cluster, job: Job<'_>, runs: &[&Run], show: Show) -> Self {
        let opened: Vec<_> = runs.iter().map(|run| open(cluster, job, run, Window::default())).collect();
        let opened: Vec<_> = futures::stream::iter(opened).buffered(AT_ONCE).collect().await;
        let mut merged = Self { runs: Vec::new(), show, troubles: Vec::new() };
        for (run, opened) in runs.iter().zip(opened) {
            let stream = match opened {
                Ok(stream) => stream,
                Err(error) => {
                    merged.troubles.push(error.told(&run.source.pod));
                    continue;
                }
            };
            merged.runs.push(Reading {
                run: (*run).clone(),
                stream: Some(Bytes::new(stream)),
                pieces: Pieces::default(),
                ready: VecDeque::new(),
                time: String::new(),
            });
        }
        merged
    }

    /// The next line that is asked for; `None` at the end of all logs.
    pub async fn next(&mut self) -> Option<Line> {
        loop {
            for reading in &mut self.runs {
                if let Err(trouble) = reading.fill().await {
                    self.troubles.push(trouble);
                }
            }
            self.runs.retain(|reading| !reading.ready.is_empty());
            let time = |reading: &Reading| reading.ready.front().map(|line| line.time.clone());
            // runs are in order: of equal times the first one's line comes first
            let (at, _) = self.runs.iter().enumerate().min_by(|a, b| time(a.1).cmp(&time(b.1)))?;
            let line = self.runs.get_mut(at)?.ready.pop_front()?;
            if self.show.wants(&line) {
                return Some(line);
            }
        }
    }
}

impl Reading {
    /// Reads until a line is ready, or the log has ended.
    async fn fill(&mut self) -> Result<(), String> {
        while self.ready.is_empty() {
            let Some(stream) = &mut self.stream else { return Ok(()) };
            let next = stream.next().await;
            let is_over = !matches!(next, Ok(Some(_)));
            if let Ok(Some(Piece::Line { text, .. })) = &next {
                let (time, text) = history::stamped(text);
                if !time.is_empty() {
                    time.clone_into(&mut self.time);
                }
                let text = self.run.source.whole(&mut self.pieces, text);
                self.ready.push_back(line(&self.run, &self.time, text));
            }
            if is_over {
                self.stream = None;
                let rest: Vec<String> = std::mem::take(&mut self.pieces).rest().collect();
                self.ready.extend(rest.into_iter().map(|text| line(&self.run, &self.time, text)));
            }
            if let Err(error) = next {
                return Err(format!("the log of pod {} broke off: {error}", self.run.source.pod));
            }
        }
        Ok(())
    }
}
