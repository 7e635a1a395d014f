//! What mpirun prints for its ranks: each piece that a rank writes behind a mark, `[1,3]<stdout>:` for rank 3 of its first
//! application. A piece need not be a line, and pieces of several ranks may share one: Python, unbuffered, writes each
//! argument of `print` and the line's end by themselves.

use std::collections::BTreeMap;

/// The rank that a text is marked with, and what follows the mark.
pub(crate) fn marked(text: &str) -> Option<(i64, &str)> {
    let (application, rest) = text.strip_prefix('[')?.split_once(',')?;
    let (rank, rest) = rest.split_once("]<std")?;
    let line = rest.strip_prefix("out>:").or_else(|| rest.strip_prefix("err>:"))?;
    application.parse::<u32>().ok()?;
    Some((rank.parse().ok()?, line))
}

/// Puts the pieces of a log together, so that each line is one rank's.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Lines that have no end yet, by mark.
    begun: BTreeMap<String, String>,
}

impl Pieces {
    /// The line of the rank that ended it, marked once; pieces of other ranks in it wait for their ends. A line without
    /// marks is the launcher's own.
    pub(crate) fn join(&mut self, text: &str) -> String {
        let starts: Vec<(usize, usize)> = text
            .match_indices('[')
            .filter_map(|(at, _)| Some((at, text.len() - marked(&text[at..])?.1.len())))
            .collect();
        let (Some((0, _)), Some(last)) = (starts.first(), starts.last()) else { return text.to_owned() };
        for (piece, next) in starts.iter().zip(&starts[1..]) {
            self.begun.entry(text[piece.0..piece.1].to_owned()).or_default().push_str(&text[piece.1..next.0]);
        }
        let mark = &text[last.0..last.1];
        format!("{mark}{}{}", self.begun.remove(mark).unwrap_or_default(), &text[last.1..])
    }

    /// What was begun and never ended.
    pub(crate) fn rest(self) -> impl Iterator<Item = String> {
        self.begun.into_iter().filter(|(_, line)| !line.is_empty()).map(|(mark, line)| mark + &line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks() {
        assert_eq!(marked("[1,3]<stdout>:hello"), Some((3, "hello")));
        assert_eq!(marked("[1,0]<stderr>: hello"), Some((0, " hello")));
        for text in ["[1,0] hello", "mpirun: no", "[a,b] [1,2]<stdout>:x", "[x,3]<stdout>:x"] {
            assert_eq!(marked(text), None, "{text}");
        }
    }

    #[test]
    fn a_line_is_one_ranks() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.join("[1,3]<stdout>:loss 0.1[1,3]<stdout>:"), "[1,3]<stdout>:loss 0.1");
        assert_eq!(pieces.join("[1,1]<stdout>:red[1,0]<stdout>:red[1,1]<stdout>: a"), "[1,1]<stdout>:red a");
        assert_eq!(pieces.join("mpirun noticed [1,1]<stdout>:"), "mpirun noticed [1,1]<stdout>:");
        assert_eq!(pieces.join("[1,0]<stderr>:warning"), "[1,0]<stderr>:warning");
        assert_eq!(pieces.join("[1,0]<stdout>: b"), "[1,0]<stdout>:red b");
        assert_eq!(pieces.join("[1,2]<stdout>:cut[1,0]<stdout>:"), "[1,0]<stdout>:");
        assert_eq!(pieces.rest().collect::<Vec<_>>(), ["[1,2]<stdout>:cut"]);
    }

    proptest! {
        /// However the pieces fall, each rank's text comes out whole and in order.
        #[test]
        fn nothing_is_lost(pieces in prop::collection::vec((0..4_usize, "[a-c ]{0,3}\n?"), 0..40)) {
            let mut log = String::new();
            let mut said = vec![String::new(); 4];
            for (rank, piece) in pieces {
                said[rank] += &piece;
                log += &format!("[1,{rank}]<stdout>:{piece}");
            }
            let (mut joined, mut heard) = (Pieces::default(), vec![String::new(); 4]);
            let ended = log.rfind('\n').map_or(0, |at| at + 1);
            let mut lines: Vec<String> = log[..ended].lines().map(|line| joined.join(line)).collect();
            if ended < log.len() {
                lines.push(joined.join(&log[ended..]));
            }
            for line in lines.into_iter().chain(joined.rest()) {
                let (rank, text) = marked(&line).expect("every line is marked");
                heard[usize::try_from(rank).expect("a rank")] += &format!("{text}\n");
            }
            for (said, heard) in said.iter().zip(&heard) {
                let whole = |text: &str| text.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect::<Vec<_>>();
                prop_assert_eq!(whole(said), whole(heard));
            }
        }
    }
}
