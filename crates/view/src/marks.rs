//! Marks that launchers put before what their ranks print: `[1,3]<stdout>:` is mpirun's for rank 3 of its first application,
//! `[default1]:` torchrun's for local rank 1. What is behind a mark need not be a line, and pieces of several ranks may share one:
//! Python, unbuffered, writes each argument of `print` and the line's end by themselves.

use std::collections::BTreeMap;

/// The rank that a text is marked with by mpirun, and what follows the mark.
pub fn of_mpirun(text: &str) -> Option<(i64, &str)> {
    let (application, rest) = text.strip_prefix('[')?.split_once(',')?;
    let (rank, rest) = rest.split_once("]<std")?;
    let line = rest.strip_prefix("out>:").or_else(|| rest.strip_prefix("err>:"))?;
    application.parse::<u32>().ok()?;
    Some((rank.parse().ok()?, line))
}

/// The role and the local rank that a text is marked with by torchrun's tee, and what follows the mark. torch's own mark before a
/// traceback, `[rank3]: `, has the same form, with the rank among all, and is a part of the line.
pub fn of_torchrun(text: &str) -> Option<(&str, i64, &str)> {
    let (mark, line) = text.strip_prefix('[')?.split_once("]:")?;
    let digits = mark.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let role = &mark[..mark.len() - digits.len()];
    if role.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((role, digits.parse().ok()?, line))
}

/// Puts the pieces of a log together, so that each line is one rank's.
#[derive(Debug, Default)]
pub struct Pieces {
    /// Lines that have no end yet, by mark.
    begun: BTreeMap<String, String>,
}

impl Pieces {
    /// The line of the rank that ended it, marked once; pieces of other ranks in it wait for their ends. A line that begins with no
    /// mark is the launcher's own.
    pub fn of_mpirun(&mut self, text: &str) -> String {
        self.join(text, |text| Some(of_mpirun(text)?.1))
    }

    /// The same of a node where torchrun runs so many processes.
    pub fn of_torchrun(&mut self, text: &str, processes: i64) -> String {
        match of_torchrun(text) {
            Some((first, local, _)) if first != "rank" && local < processes => self.join(text, |text| {
                let (role, local, line) = of_torchrun(text)?;
                (role == first && local < processes).then_some(line)
            }),
            Some(_) | None => text.to_owned(),
        }
    }

    /// `mark` says what follows the mark with which a text begins, if it begins with one.
    fn join(&mut self, text: &str, mark: impl Fn(&str) -> Option<&str>) -> String {
        let starts: Vec<(usize, usize)> =
            text.match_indices('[').filter_map(|(at, _)| Some((at, text.len() - mark(&text[at..])?.len()))).collect();
        let (Some((0, _)), Some(last)) = (starts.first(), starts.last()) else { return text.to_owned() };
        for (piece, next) in starts.iter().zip(&starts[1..]) {
            self.begun.entry(text[piece.0..piece.1].to_owned()).or_default().push_str(&text[piece.1..next.0]);
        }
        let mark = &text[last.0..last.1];
        format!("{mark}{}{}", self.begun.remove(mark).unwrap_or_default(), &text[last.1..])
    }

    /// What was begun and never ended.
    pub fn rest(self) -> impl Iterator<Item = String> {
        self.begun.into_iter().filter(|(_, line)| !line.is_empty()).map(|(mark, line)| mark + &line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks() {
        assert_eq!(of_mpirun("[1,3]<stdout>:hello"), Some((3, "hello")));
        assert_eq!(of_mpirun("[1,0]<stderr>: hello"), Some((0, " hello")));
        for text in ["[1,0] hello", "mpirun: no", "[a,b] [1,2]<stdout>:x", "[x,3]<stdout>:x"] {
            assert_eq!(of_mpirun(text), None, "{text}");
        }
        assert_eq!(of_torchrun("[default1]:hello"), Some(("default", 1, "hello")));
        assert_eq!(of_torchrun("[trainer12]: a]:b"), Some(("trainer", 12, " a]:b")));
        for text in ["[1]: a list", "[default]:x", "[default1] x", "[default-1]:x", "x [default1]:y", "[a b1]:x"] {
            assert_eq!(of_torchrun(text), None, "{text}");
        }
    }

    #[test]
    fn a_line_is_one_ranks() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.of_mpirun("[1,3]<stdout>:loss 0.1[1,3]<stdout>:"), "[1,3]<stdout>:loss 0.1");
        assert_eq!(pieces.of_mpirun("[1,1]<stdout>:red[1,0]<stdout>:red[1,1]<stdout>: a"), "[1,1]<stdout>:red a");
        assert_eq!(pieces.of_mpirun("mpirun noticed [1,1]<stdout>:"), "mpirun noticed [1,1]<stdout>:");
        assert_eq!(pieces.of_mpirun("[1,0]<stderr>:warning"), "[1,0]<stderr>:warning");
        assert_eq!(pieces.of_mpirun("[1,0]<stdout>: b"), "[1,0]<stdout>:red b");
        assert_eq!(pieces.of_mpirun("[1,2]<stdout>:cut[1,0]<stdout>:"), "[1,0]<stdout>:");
        assert_eq!(pieces.rest().collect::<Vec<_>>(), ["[1,2]<stdout>:cut"]);
    }

    #[test]
    fn a_line_of_torchruns_is_one_ranks() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.of_torchrun("[default0]:sum[default1]:sum 10 of 4", 2), "[default1]:sum 10 of 4");
        assert_eq!(pieces.of_torchrun("W1122 torchrun's own", 2), "W1122 torchrun's own");
        assert_eq!(pieces.of_torchrun("[default0]: 10 of 4", 2), "[default0]:sum 10 of 4");
        for whole in
            ["[default0]:[rank0]: Traceback", "[default1]:[default2]: no such process", "[rank1]: of [default0]: x"]
        {
            assert_eq!(pieces.of_torchrun(whole, 2), whole);
        }
        assert_eq!(pieces.rest().count(), 0);
    }

    proptest! {
        /// However the pieces fall, each rank's text comes out whole and in order.
        #[test]
        fn nothing_is_lost(pieces in prop::collection::vec((0..4_usize, "[a-c ]{0,3}\n?"), 0..40), mpi: bool) {
            let mut log = String::new();
            let mut said = vec![String::new(); 4];
            for (rank, piece) in pieces {
                said[rank] += &piece;
                log += &if mpi { format!("[1,{rank}]<stdout>:{piece}") } else { format!("[default{rank}]:{piece}") };
            }
            let (mut joined, mut heard) = (Pieces::default(), vec![String::new(); 4]);
            let mut join = |line: &str| if mpi { joined.of_mpirun(line) } else { joined.of_torchrun(line, 4) };
            let ended = log.rfind('\n').map_or(0, |at| at + 1);
            let mut lines: Vec<String> = log[..ended].lines().map(&mut join).collect();
            if ended < log.len() {
                lines.push(join(&log[ended..]));
            }
            for line in lines.into_iter().chain(joined.rest()) {
                let marked = if mpi { of_mpirun(&line) } else { of_torchrun(&line).map(|(_, rank, text)| (rank, text)) };
                let (rank, text) = marked.expect("every line is marked");
                heard[usize::try_from(rank).expect("a rank")] += &format!("{text}\n");
            }
            for (said, heard) in said.iter().zip(&heard) {
                let whole = |text: &str| text.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect::<Vec<_>>();
                prop_assert_eq!(whole(said), whole(heard));
            }
        }
    }
}
