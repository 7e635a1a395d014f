//! Output of managed jobs, which the control plane keeps: one stream over all attempts.

use crate::output::{DownloadError, Patience, RETRY, begin_new};
use crate::{Show, Sky};
use api::job_history;
use client::ClientError;
use futures::AsyncBufReadExt;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant};

/// A connection that brings nothing for this long is no failure: the job is silent.
const SHORT: Duration = Duration::from_secs(1);

/// Which output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedOutput {
    /// The name of the ManagedJob.
    pub job: String,
    /// One task; `None`: all.
    pub task: Option<u32>,
    /// Go on until the task or the job has ended.
    pub follow: bool,
    /// Begin with the last lines.
    pub tail: Option<usize>,
}

/// A line, and the part of the output that it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedLine {
    pub task: u32,
    pub attempt: u32,
    /// `setup`, `run`.
    pub stage: String,
    /// As it was written.
    pub text: Vec<u8>,
}

impl ManagedLine {
    /// As it is shown: bytes that are no UTF-8 are replaced, and a line that was redrawn is its last state.
    pub fn shown(&self) -> String {
        facts::settled(&self.text).0
    }
}

impl ManagedOutput {
    fn path(&self, namespace: &str, from: &str) -> String {
        let job = job_history::path(namespace, job_history::MANAGED_JOBS, &self.job);
        let mut path = format!("{job}/{}?places=true&follow={}", job_history::LOG, self.follow);
        if let Some(task) = self.task {
            path += &format!("&task={task}");
        }
        match (from, self.tail) {
            ("", Some(tail)) => path += &format!("&tail={tail}"),
            ("", None) => {}
            (from, _) => path += &format!("&from={from}"),
        }
        path
    }

    /// Passes on the lines to the end. A restart of the control plane interrupts it only. `false`: the job is gone.
    ///
    /// # Errors
    /// The control plane refuses it, or does not answer for too long.
    pub async fn read(
        &self,
        sky: &Sky,
        show: Show<'_>,
        mut line: impl FnMut(ManagedLine) -> std::io::Result<()>,
    ) -> Result<bool, ReadError> {
        let mut from = String::new();
        let mut patience = Patience::default();
        loop {
            let (began, before) = (Instant::now(), from.clone());
            let error = match self.read_once(sky, &mut from, &mut line).await {
                Ok(true) => return Ok(true),
                Ok(false) => unreachable("the output breaks off".into()),
                Err(ReadError::Client(error @ ClientError::Unreachable { .. })) => error,
                Err(ReadError::Gone) => return Ok(false),
                Err(error) => return Err(error),
            };
            if from != before || began.elapsed() > SHORT {
                patience = Patience::default();
                tokio::time::sleep(RETRY).await;
            } else {
                patience.wait(error, show).await?;
            }
        }
    }

    /// `false`: it broke off.
    async fn read_once(
        &self,
        sky: &Sky,
        from: &mut String,
        line: &mut impl FnMut(ManagedLine) -> std::io::Result<()>,
    ) -> Result<bool, ReadError> {
        let request = http::Request::get(self.path(&sky.namespace, from)).body(Vec::new());
        let stream = sky.client.request_stream(request.map_err(kube::Error::HttpError)?).await;
        let mut stream = pin!(stream.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 404 => ReadError::Gone,
            // it is starting, or stopping
            kube::Error::Api(status) if status.code == 503 => {
                unreachable(Box::new(kube::Error::Api(status))).into()
            }
            error => error.into(),
        })?);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            // what breaks off is read again
            if stream.read_until(b'\n', &mut bytes).await.is_err() {
                return Ok(false);
            }
            let Some(whole) = bytes.strip_suffix(b"\n") else { return Ok(false) };
            if whole == b"." {
                return Ok(true);
            }
            let Some((place, read)) = placed(whole) else { return Ok(false) };
            line(read).map_err(ReadError::Write)?;
            *from = place;
        }
    }

    /// Writes the output so far into a folder, a file for each stage of each attempt.
    ///
    /// # Errors
    /// A file cannot be written, or the control plane does not answer.
    pub async fn download(&self, sky: &Sky, into: &Path, show: Show<'_>) -> Result<bool, DownloadError> {
        let mut files: BTreeMap<PathBuf, File> = BTreeMap::new();
        let mut now = PathBuf::new();
        let read = self.read(sky, show, |line| {
            let ManagedLine { task, attempt, stage, text } = line;
            let name = format!("attempt-{attempt}-{stage}.log");
            now = into.join(format!("task-{task}")).join(name);
            if !files.contains_key(&now) {
                // one after the other: a file that is complete is closed
                files.clear();
                std::fs::create_dir_all(now.parent().unwrap_or(into))?;
                files.insert(now.clone(), begin_new(&now)?);
            }
            files.get_mut(&now).map_or(Ok(()), |file| file.write_all(&[&text, &b"\n"[..]].concat()))
        });
        match read.await {
            Ok(is_there) => Ok(is_there),
            Err(ReadError::Write(error)) => Err(DownloadError::Write(now, error)),
            Err(ReadError::Client(error)) => Err(error.into()),
            Err(ReadError::Gone) => Ok(false),
        }
    }
}

/// Why output was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The receiver of the lines failed.
    #[error("a line cannot be written")]
    Write(#[source] std::io::Error),
    #[error("the job is gone")]
    Gone,
}

impl From<kube::Error> for ReadError {
    fn from(error: kube::Error) -> Self {
        Self::Client(error.into())
    }
}

fn unreachable(source: Box<dyn std::error::Error + Send + Sync>) -> ClientError {
    ClientError::Unreachable { server: None, local: false, source }
}

/// A line in two: the place after it, `0.1.run.4096`, and the line.
fn placed(line: &[u8]) -> Option<(String, ManagedLine)> {
    let end = line.iter().position(|byte| *byte == b' ')?;
    let (place, text) = (std::str::from_utf8(line.get(..end)?).ok()?, line.get(end + 1..)?);
    let mut words = place.split('.');
    let (task, attempt) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let stage = words.next().filter(|stage| matches!(*stage, "setup" | "run"))?.to_owned();
    Some((place.to_owned(), ManagedLine { task, attempt, stage, text: text.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_place_before_it() {
        let (place, line) = placed(b"0.2.run.77 (head, rank=0, pid=1)  a \xff").unwrap();
        assert_eq!(place, "0.2.run.77");
        assert_eq!((line.task, line.attempt, line.stage.as_str()), (0, 2, "run"));
        assert_eq!(
            (&line.text[..], &*line.shown()),
            (&b"(head, rank=0, pid=1)  a \xff"[..], "(head, rank=0, pid=1)  a \u{fffd}")
        );
        assert_eq!(placed(b"0.1.setup.7 ").unwrap().1.text, b"");
        assert_eq!(placed(b"0.1.run.7 10%\r20%\r").unwrap().1.shown(), "20%");
        for wrong in [&b"0.1.run.7"[..], b"x y", b"0.1.../run.7 z"] {
            assert_eq!(placed(wrong), None);
        }
    }

    #[test]
    fn a_reader_that_goes_on_asks_for_what_comes_after() {
        let wanted = ManagedOutput { job: "job-1".to_owned(), task: Some(1), follow: true, tail: Some(5) };
        let path =
            "/apis/history.trainyard.dev/v1alpha1/namespaces/default/managedjobs/job-1/log?places=true&follow=true";
        assert_eq!(wanted.path("default", ""), format!("{path}&task=1&tail=5"));
        assert_eq!(wanted.path("default", "0.1.run.7"), format!("{path}&task=1&from=0.1.run.7"));
    }
}
