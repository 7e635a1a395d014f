//! Lines of what containers print, which is bytes: invalid UTF-8 never ends a stream, and a carriage return redraws a line.

use futures::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, FutureExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use std::io;

/// The most bytes of a line. A longer line comes in several parts, and is cut between characters.
const LINE_MAX: usize = 1024 * 1024;

/// What a stream brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A line that has ended, without its end; of one that was redrawn its last state.
    Line { text: String, was_redrawn: bool },
    /// The state of a line that is being redrawn and has not ended.
    State(String),
}

/// A stream of bytes, read line by line.
pub struct Pieces<R> {
    stream: R,
    line: Vec<u8>,
    /// How much of the line was told as a state.
    told: usize,
}

impl<R: AsyncBufRead + Unpin> Pieces<R> {
    pub fn new(stream: R) -> Self {
        Self { stream, line: Vec::new(), told: 0 }
    }

    /// The next piece; `None` at the end of the stream.
    ///
    /// Errors: the stream's.
    pub async fn next(&mut self) -> io::Result<Option<Piece>> {
        loop {
            let is_new = self.line.len() > self.told;
            // all that is there at once belongs together: only then is a state worth showing
            let filled = self.stream.fill_buf().now_or_never();
            let waits = filled.is_none();
            if waits && is_new && self.line.contains(&b'\r') {
                self.told = self.line.len();
                if let Some(text) = state(&self.line) {
                    return Ok(Some(Piece::State(text)));
                }
            }
            let bytes = self.stream.fill_buf().await?;
            if bytes.is_empty() {
                return Ok((!self.line.is_empty()).then(|| self.end()));
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let room = LINE_MAX.saturating_sub(self.line.len());
            let take = end.unwrap_or(bytes.len()).min(room);
            self.line.extend_from_slice(&bytes[..take]);
            let is_end = end == Some(take);
            let is_too_long = !is_end && take < bytes.len();
            self.stream.consume_unpin(take + usize::from(is_end));
            if is_too_long {
                let rest = self.line.split_off(whole_characters(&self.line));
                let piece = self.end();
                self.line = rest;
                return Ok(Some(piece));
            }
            if is_end {
                return Ok(Some(self.end()));
            }
        }
    }

    fn end(&mut self) -> Piece {
        let line = std::mem::take(&mut self.line);
        self.told = 0;
        let (text, was_redrawn) = settled(&line);
        Piece::Line { text, was_redrawn }
    }
}

/// The length without an incomplete character at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    let last = bytes.len().saturating_sub(3);
    let begun = bytes.iter().enumerate().skip(last).rfind(|(_, byte)| **byte & 0xc0 == 0xc0);
    match begun {
        Some((at, byte)) if at + byte.leading_ones() as usize > bytes.len() => at,
        _ => bytes.len(),
    }
}

/// The lines of what was read as a whole, as [`Pieces`] reads them from a stream.
pub fn lines(bytes: &[u8]) -> Vec<String> {
    let (mut pieces, mut all) = (Pieces::new(bytes), Vec::new());
    // bytes that are there need no waiting
    while let Some(Ok(Some(piece))) = pieces.next().now_or_never() {
        if let Piece::Line { text, .. } = piece {
            all.push(text);
        }
    }
    all
}

/// The text of a whole line, and whether it was redrawn: then it is its last state.
pub fn settled(line: &[u8]) -> (String, bool) {
    let whole = line.strip_suffix(b"\r").unwrap_or(line);
    match whole.contains(&b'\r') {
        true => (state(whole).unwrap_or_default(), true),
        false => (String::from_utf8_lossy(whole).into_owned(), false),
    }
}

/// What a terminal would show of a line with carriage returns: what follows the last one, where anything does. The time with which a
/// line of a log begins stands before the first one, and stays.
fn state(line: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(line);
    let last = text.rsplit('\r').find(|part| !part.trim().is_empty())?;
    let first = text.split('\r').next().unwrap_or_default();
    let stamp = first.split_once(' ').map(|(stamp, _)| stamp).filter(|stamp| is_time(stamp));
    let stamp = stamp.or_else(|| Some(first).filter(|first| is_time(first.trim_end())));
    Some(match stamp {
        Some(stamp) if !last.starts_with(stamp) => format!("{} {last}", stamp.trim_end()),
        _ => last.to_owned(),
    })
}

fn is_time(word: &str) -> bool {
    word.len() > 19 && word.ends_with('Z') && word.as_bytes().get(10) == Some(&b'T')
}

/// All that the log of a pod's container has.
///
/// Errors: the log cannot be opened, or breaks off.
pub async fn whole(api: &Api<Pod>, pod: &str, parameters: &LogParams) -> kube::Result<Vec<u8>> {
    let mut stream = std::pin::pin!(api.log_stream(pod, parameters).await?);
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.map_err(kube::Error::ReadEvents)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use futures::io::BufReader;
    use futures::stream::TryStreamExt;
    use proptest::prelude::*;

    fn read(chunks: Vec<Vec<u8>>) -> Vec<Piece> {
        let stream = futures::stream::iter(chunks.into_iter().map(io::Result::Ok)).into_async_read();
        let mut pieces = Pieces::new(BufReader::new(stream));
        let mut out = Vec::new();
        while let Some(piece) = block_on(pieces.next()).unwrap() {
            out.push(piece);
        }
        out
    }

    fn split(chunks: Vec<Vec<u8>>) -> Vec<String> {
        let text = |piece| match piece {
            Piece::Line { text, .. } => Some(text),
            Piece::State(_) => None,
        };
        read(chunks).into_iter().filter_map(text).collect()
    }

    #[test]
    fn bytes_that_are_no_text_end_nothing() {
        assert_eq!(
            split(vec![b"caf\xe9 \xff\n".to_vec(), b"after\n\nlast".to_vec()]),
            ["caf\u{fffd} \u{fffd}", "after", "", "last"]
        );
    }

    #[test]
    fn a_redrawn_line_is_its_last_state() {
        let redrawn = |text: &str| Piece::Line { text: text.to_owned(), was_redrawn: true };
        assert_eq!(read(vec![b"\r 0%\r 50%\r100%\n".to_vec()]), [redrawn("100%")]);
        assert_eq!(split(vec![b"plain\r\n".to_vec()]), ["plain"]);
        let stamp = "2026-01-01T00:00:00.000000000Z";
        assert_eq!(split(vec![format!("{stamp} \r 1%\r 2%\r\n").into_bytes()]), [format!("{stamp}  2%")]);
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        for (long, parts) in [
            ("é".repeat(LINE_MAX / 2), 1),
            (format!("x{}", "é".repeat(LINE_MAX)), 3),
            (format!("xy{}", "\u{1f600}".repeat(LINE_MAX / 4)), 2),
        ] {
            let bytes = format!("{long}\nnext").into_bytes();
            let read = lines(&bytes);
            assert_eq!((read.len(), read[..parts].concat() == long), (parts + 1, true));
            let at = LINE_MAX.min(bytes.len());
            assert!(split(vec![bytes[..at].to_vec(), bytes[at..].to_vec()]) == read, "a split at the limit");
        }
        // what is no character stays as it is
        assert_eq!(lines(&vec![0xff; LINE_MAX + 1]).len(), 2);
        assert_eq!(
            [&b"a\xc3"[..], b"\xf0\x9f\x98", b"\xc3\xa9", b"\x80\x80\x80", b""].map(whole_characters),
            [1, 0, 2, 3, 0]
        );
    }

    proptest! {
        /// However random bytes are split, the lines are the same, and all that has an end arrives.
        #[test]
        fn splits_change_nothing(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b'\r'), Just(0xc3)], 0..200), at in 0..200_usize) {
            let at = at.min(bytes.len());
            let whole = lines(&bytes);
            prop_assert_eq!(&whole, &split(vec![bytes[..at].to_vec(), bytes[at..].to_vec()]));
            prop_assert_eq!(whole.len(), bytes.split_inclusive(|byte| *byte == b'\n').count());
        }
    }
}
